-- Back to 0004: what waits for a full queue is published as if it was new, and may enter a queue
-- for a second time that it has entered already.

CREATE OR REPLACE FUNCTION howdah.check_publish(
    vhost text, exchange text, routing_key text, body bytea, headers jsonb, priority integer,
    expires_in interval, delay interval
) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    built_in CONSTANT text[] :=
        ARRAY['', 'amq.direct', 'amq.fanout', 'amq.headers', 'amq.match', 'amq.topic'];
    longest CONSTANT interval := '1000 years';
BEGIN
    IF routing_key IS NULL OR body IS NULL OR vhost IS NULL OR exchange IS NULL THEN
        RAISE EXCEPTION 'routing_key, body, exchange and vhost must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'Publish an empty body as '''', and to a queue with exchange ''''.';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = check_publish.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_literal(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out to publish in ''/''.';
    END IF;
    IF exchange <> ALL (built_in) AND NOT EXISTS (
        SELECT FROM howdah.exchange e
        WHERE e.vhost = check_publish.vhost AND e.name = check_publish.exchange
    ) THEN
        RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
            quote_literal(exchange), quote_literal(vhost)
            USING ERRCODE = 'undefined_object',
                  HINT = 'Declare it first, or leave exchange out to publish to the queue that '
                         'routing_key names.';
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'headers must be a JSON object, not %', jsonb_typeof(headers)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For example ''{"region": "eu"}''.';
    END IF;
    IF priority NOT BETWEEN 0 AND 255 THEN
        RAISE EXCEPTION 'priority is %, and must be from 0 to 255', priority
            USING ERRCODE = 'numeric_value_out_of_range';
    END IF;
    IF NOT coalesce(expires_in BETWEEN '0' AND longest, true) THEN
        RAISE EXCEPTION 'expires_in is %, and must be from 0 to %', expires_in, longest
            USING ERRCODE = 'interval_field_overflow', HINT = 'Leave it out for never.';
    END IF;
    IF NOT coalesce(delay BETWEEN '0' AND longest, true) THEN
        RAISE EXCEPTION 'delay is %, and must be from 0 to %', delay, longest
            USING ERRCODE = 'interval_field_overflow', HINT = 'Leave it out for none.';
    END IF;
END
$function$;

DROP VIEW howdah.outbox_status;
ALTER TABLE howdah.gateway DROP COLUMN max_message_size;
ALTER TABLE howdah.outbox DROP COLUMN waiting_for;
