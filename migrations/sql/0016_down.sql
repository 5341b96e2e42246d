-- Back to 0015: a message to a queue that there is not is dropped by the gateway.

DROP VIEW howdah.commands;
DROP FUNCTION
    howdah.wake(),
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.publish_many(
        text, bytea[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(
        text, text[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(
        text, jsonb[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.check_publish(
        text, text, text, bytea, jsonb, integer, interval, interval, boolean);

CREATE FUNCTION howdah.check_publish(
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
COMMENT ON FUNCTION howdah.check_publish(
    text, text, text, bytea, jsonb, integer, interval, interval
) IS 'Refuses what the gateway could not publish. Internal.';
REVOKE ALL ON FUNCTION howdah.check_publish(
    text, text, text, bytea, jsonb, integer, interval, interval
) FROM PUBLIC;

CREATE FUNCTION howdah.publish(
    routing_key text,
    body bytea,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT NULL,
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    -- Not now(): a long transaction would publish messages that expired before they were made.
    made_at CONSTANT timestamptz := clock_timestamp();
    published bigint;
BEGIN
    PERFORM howdah.check_publish(
        vhost, exchange, routing_key, body, headers, priority, expires_in, delay);
    -- One by one only if one could be too long: a call takes 0.10 ms this way, 0.20 ms that way.
    IF octet_length(concat(
        routing_key, content_type, content_encoding, message_id, correlation_id, reply_to, subject,
        app_id, group_id)) > 65535
    THEN
        PERFORM howdah.check_texts(jsonb_build_object(
            'routing_key', routing_key, 'content_type', content_type,
            'content_encoding', content_encoding, 'message_id', message_id,
            'correlation_id', correlation_id, 'reply_to', reply_to, 'subject', subject,
            'app_id', app_id, 'group_id', group_id));
    END IF;
    IF retain AND exchange <> 'amq.topic' THEN
        RAISE EXCEPTION 'only a message to amq.topic can be retained'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use publish_topic().';
    END IF;
    INSERT INTO howdah.outbox (
        vhost, not_before, retain, requested_by, inserted_at,
        expires_at, priority, durable, exchange, routing_key, content_type, content_encoding,
        message_id, correlation_id, reply_to, subject, app_id, group_id, created_at, headers,
        publisher, body
    ) VALUES (
        publish.vhost, made_at + delay, coalesce(publish.retain, false), session_user, made_at,
        made_at + expires_in, publish.priority, coalesce(publish.durable, true),
        publish.exchange, publish.routing_key, publish.content_type, publish.content_encoding,
        publish.message_id, publish.correlation_id, publish.reply_to, publish.subject,
        publish.app_id, publish.group_id, made_at, publish.headers, session_user, publish.body
    ) RETURNING id INTO published;
    RETURN published;
END
$function$;
COMMENT ON FUNCTION howdah.publish(
    text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
    interval, boolean, text, boolean
) IS 'Publishes a message when this transaction commits; to the queue that routing_key names, or '
    'through an exchange. Returns its number in the outbox.';

CREATE FUNCTION howdah.publish(
    routing_key text,
    body text,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'text/plain; charset=utf-8',
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish(
        routing_key, convert_to(body, 'UTF8'), exchange, headers, content_type, content_encoding,
        message_id, correlation_id, reply_to, subject, app_id, group_id, priority, expires_in,
        delay, durable, vhost, retain)
$function$;
COMMENT ON FUNCTION howdah.publish(
    text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
    interval, boolean, text, boolean
) IS 'Publishes text, as UTF-8, when this transaction commits; see the form for bytea.';

CREATE FUNCTION howdah.publish(
    routing_key text,
    body jsonb,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish(
        routing_key, convert_to(body::text, 'UTF8'), exchange, headers, content_type,
        content_encoding, message_id, correlation_id, reply_to, subject, app_id, group_id,
        priority, expires_in, delay, durable, vhost, retain)
$function$;
COMMENT ON FUNCTION howdah.publish(
    text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
    interval, boolean, text, boolean
) IS 'Publishes JSON when this transaction commits; see the form for bytea.';

REVOKE ALL ON FUNCTION
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean)
    TO howdah_publisher, howdah_operator;

CREATE OR REPLACE FUNCTION howdah.submit_command(kind text, vhost text, queue text, argument jsonb)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    target howdah.queue;
    is_nothing CONSTANT boolean := kind = 'redrive' AND argument ->> 'offsets' = '{}';
    submitted bigint;
BEGIN
    IF kind IS NULL OR kind <> ALL (ARRAY[
        'purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind', 'reset_group'
    ]) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind(), '
                         'unbind() or reset_group().';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = submit_command.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = submit_command.vhost AND q.name = submit_command.queue;
    IF NOT FOUND AND kind <> 'declare_queue' THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, done_at, result)
    VALUES (
        submit_command.kind, submit_command.vhost, submit_command.queue,
        -- The number, so that a queue of the same name made since is left alone.
        argument || jsonb_strip_nulls(jsonb_build_object('queue_id', target.id)),
        session_user,
        CASE WHEN is_nothing THEN now() END, CASE WHEN is_nothing THEN '{"moved": 0}'::jsonb END
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
DROP FUNCTION howdah.is_declared(text, text);
ALTER FUNCTION howdah.find_gaps() RESET jit;
