-- What SQL publishes into a full queue waits, and what is too large is refused where it is
-- published.

ALTER TABLE howdah.outbox ADD COLUMN waiting_for text[];
COMMENT ON COLUMN howdah.outbox.waiting_for IS 'Full queues that it still has to enter; null: the gateway has not looked at it yet.';
CREATE INDEX outbox_waiting_idx ON howdah.outbox (id) WHERE waiting_for IS NOT NULL;
GRANT UPDATE (waiting_for) ON howdah.outbox TO howdah_gateway;

ALTER TABLE howdah.gateway ADD COLUMN max_message_size bigint;
COMMENT ON COLUMN howdah.gateway.max_message_size IS 'Largest message in bytes that the owner takes; null: no gateway has said so yet.';

CREATE VIEW howdah.outbox_status AS
SELECT
    o.vhost,
    w.queue,
    count(*) AS messages,
    now() - min(o.inserted_at) AS oldest_age
FROM howdah.outbox o
LEFT JOIN LATERAL unnest(o.waiting_for) AS w (queue) ON true
GROUP BY o.vhost, w.queue;
COMMENT ON VIEW howdah.outbox_status IS
    'Messages that SQL published and that have not entered every queue yet.';
COMMENT ON COLUMN howdah.outbox_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.outbox_status.queue IS
    'Full queue that they wait for; null: the gateway has not looked at them yet.';
COMMENT ON COLUMN howdah.outbox_status.messages IS 'How many.';
COMMENT ON COLUMN howdah.outbox_status.oldest_age IS 'How long the oldest has been there.';
GRANT SELECT ON howdah.outbox_status TO howdah_operator, howdah_reader;

-- As before, and the size.
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
    largest CONSTANT bigint := (SELECT g.max_message_size FROM howdah.gateway g);
    size CONSTANT bigint := octet_length(body) + coalesce(octet_length(headers::text), 0);
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
    IF size > largest THEN
        RAISE EXCEPTION 'the message is % bytes, and the gateway takes % at most', size, largest
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Publish less at once, or raise broker.max_message_size.';
    END IF;
END
$function$;
