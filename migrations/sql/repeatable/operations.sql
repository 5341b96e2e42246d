-- Looking into queues, and asking the gateway to change them.

CREATE OR REPLACE FUNCTION howdah.peek(
    queue text,
    "limit" integer DEFAULT 10,
    from_offset bigint DEFAULT NULL,
    vhost text DEFAULT '/'
) RETURNS TABLE (
    "offset" bigint,
    enqueued_at timestamptz,
    delivery_count integer,
    exchange text,
    routing_key text,
    priority smallint,
    expires_at timestamptz,
    not_before timestamptz,
    content_type text,
    content_encoding text,
    message_id text,
    correlation_id text,
    reply_to text,
    headers jsonb,
    publisher text,
    protocol text,
    deaths jsonb,
    body bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    target howdah.queue;
    unsettled int8multirange := int8multirange(int8range(coalesce(from_offset, 0), NULL));
    span int8range;
    current_generation integer;
    retired integer[];
    missing integer := "limit";
    found_rows bigint;
BEGIN
    IF "limit" IS NULL OR "limit" < 0 THEN
        RAISE EXCEPTION 'limit must be 0 or more' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO target FROM howdah.queue q WHERE q.vhost = peek.vhost AND q.name = peek.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    current_generation := howdah.generation_of(target.id);
    retired := howdah.left_segments(target.id);
    IF target.kind = 'classic' THEN
        SELECT unsettled * int8multirange(int8range(s.floor, NULL)) - s.acked INTO unsettled
        FROM howdah.settlement_state s WHERE s.queue_id = target.id;
    END IF;
    -- One range of the primary key after the other, until there is enough.
    FOR span IN SELECT unnest(unsettled) LOOP
        EXIT WHEN missing <= 0;
        RETURN QUERY
            SELECT
                m."offset", m.enqueued_at, coalesce(d.count, 0), m.exchange, m.routing_key,
                m.priority, m.expires_at,
                CASE WHEN d.count IS NULL THEN m.not_before ELSE d.not_before END,
                m.content_type, m.content_encoding, m.message_id, m.correlation_id, m.reply_to,
                m.headers, m.publisher, howdah.protocol_name(m.form), m.deaths,
                CASE WHEN m.body_id IS NULL THEN m.body ELSE (
                    SELECT b.body FROM howdah.message_body b
                    WHERE b.id = m.body_id AND b.segment_id = m.segment_id
                ) END
            FROM howdah.message m
            LEFT JOIN LATERAL (
                SELECT f.count, f.not_before
                FROM howdah.redelivery f
                WHERE f.generation = current_generation
                  AND f.queue_id = m.queue_id AND f."offset" = m."offset"
                ORDER BY f.count DESC LIMIT 1
            ) d ON true
            WHERE m.queue_id = target.id AND m."offset" >= lower(span)
              AND m."offset" < coalesce(upper(span), 9223372036854775807)
              AND m.segment_id <> ALL (retired)
            ORDER BY m."offset"
            LIMIT missing;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        missing := missing - found_rows;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.peek(text, integer, bigint, text) IS
    'The oldest unsettled messages of a queue, from an offset on if one is given; of a stream, the '
    'oldest that it keeps. Changes nothing.';

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
        'purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind', 'reset_group',
        'end_session'
    ]) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind(), '
                         'unbind(), reset_group() or end_session().';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = submit_command.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = submit_command.vhost AND q.name = submit_command.queue;
    IF NOT FOUND AND kind <> 'declare_queue' AND NOT howdah.is_declared(vhost, queue) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (
        kind, vhost, queue, argument, requested_by, requested_at, done_at, result)
    VALUES (
        submit_command.kind, submit_command.vhost, submit_command.queue,
        -- The number, so that a queue of the same name made since is left alone.
        argument || jsonb_strip_nulls(jsonb_build_object('queue_id', target.id)),
        session_user,
        -- Not now(): it stands between the messages of the same transaction.
        clock_timestamp(),
        CASE WHEN is_nothing THEN now() END, CASE WHEN is_nothing THEN '{"moved": 0}'::jsonb END
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
COMMENT ON FUNCTION howdah.submit_command(text, text, text, jsonb) IS
    'Asks the gateway for something. Internal: call purge(), redrive(), delete_queue(), '
    'declare_queue(), bind(), unbind(), reset_group() or end_session().';

CREATE OR REPLACE FUNCTION howdah.redrive(
    queue text, predicate text DEFAULT 'true', vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql
SET jit = off
AS $function$
DECLARE
    offsets int8multirange;
BEGIN
    IF predicate IS NULL OR predicate ~ '^\s*$' THEN
        RAISE EXCEPTION 'the predicate is empty'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to take them all.';
    END IF;
    -- The predicate is the caller's own SQL, so it runs with the caller's rights and no others.
    EXECUTE format(
        $query$
            SELECT range_agg(int8range(r."offset", r."offset", '[]'))
            FROM (
                SELECT m.*, d.died_in, d.reason, d.died_at, d.deaths_in_all,
                       howdah.failure_text(m.headers) AS failure
                FROM howdah.ready_messages m
                CROSS JOIN LATERAL (
                    SELECT
                        m.deaths -> 0 ->> 'queue' AS died_in,
                        m.deaths -> 0 ->> 'reason' AS reason,
                        to_timestamp((m.deaths -> 0 ->> 'time')::double precision) AS died_at,
                        (SELECT sum(coalesce((e.death ->> 'count')::bigint, 1))
                         FROM jsonb_array_elements(m.deaths) AS e(death)) AS deaths_in_all
                ) d
                WHERE m.vhost = $1 AND m.queue = $2 AND m.deaths IS NOT NULL
            ) r
            WHERE (%s
            )
        $query$, predicate)
    INTO offsets USING vhost, queue;
    RETURN howdah.submit_command(
        'redrive', vhost, queue,
        jsonb_build_object('offsets', coalesce(offsets, '{}')::text, 'predicate', predicate));
END
$function$;
COMMENT ON FUNCTION howdah.redrive(text, text, text) IS
    'Sends dead letters that lie in a queue back to the queues they died in. The predicate is an '
    'SQL condition on the columns of ready_messages and of dead_letters. Returns the number of a '
    'command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.purge(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_command('purge', vhost, queue, '{}')
$function$;
COMMENT ON FUNCTION howdah.purge(text, text) IS
    'Throws away all messages of a queue that no consumer has in flight. Returns the number of a '
    'command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.delete_queue(
    queue text,
    vhost text DEFAULT '/',
    if_unused boolean DEFAULT false,
    if_empty boolean DEFAULT false
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_command(
        'delete_queue', vhost, queue,
        jsonb_build_object('if_unused', if_unused, 'if_empty', if_empty))
$function$;
COMMENT ON FUNCTION howdah.delete_queue(text, text, boolean, boolean) IS
    'Deletes a queue with all that is in it; only if it has no consumers or no messages, where '
    'asked for. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.declare_queue(
    queue text, arguments jsonb DEFAULT '{}', vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql
AS $function$
BEGIN
    IF queue IS NULL OR queue = '' OR octet_length(queue) > 255 THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 255 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'arguments must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For example ''{"x-queue-type": "stream"}''.';
    END IF;
    RETURN howdah.submit_command(
        'declare_queue', vhost, queue, jsonb_build_object('arguments', arguments));
END
$function$;
COMMENT ON FUNCTION howdah.declare_queue(text, jsonb, text) IS
    'Declares a durable queue, with the arguments that AMQP clients give, such as x-queue-type. '
    'Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.reset_group(
    queue text, group_name text, "position" text DEFAULT 'first', vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
DECLARE
    place jsonb;
    moment timestamptz;
BEGIN
    IF EXISTS (
        SELECT FROM howdah.queue q
        WHERE q.vhost = reset_group.vhost AND q.name = reset_group.queue AND q.kind <> 'stream'
    ) THEN
        RAISE EXCEPTION 'queue % in virtual host % is no stream: it has no consumer groups',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'wrong_object_type',
                  HINT = 'What a queue has settled is gone: redrive() brings dead letters back, and '
                         'purge() drops what waits. To read again, declare a stream: '
                         'declare_queue(..., ''{"x-queue-type": "stream"}'').';
    END IF;
    IF NOT EXISTS (
        SELECT FROM howdah.settlement_state s
        WHERE s.vhost = reset_group.vhost AND s.queue = reset_group.queue
          AND s.kind = 'stream' AND s.group_name = reset_group.group_name
    ) THEN
        RAISE EXCEPTION 'stream % in virtual host % has no consumer group %',
            quote_nullable(queue), quote_nullable(vhost), quote_nullable(group_name)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.consumer_lag.';
    END IF;
    IF "position" IN ('first', 'last', 'next') THEN
        place := jsonb_build_object('name', "position");
    ELSIF "position" ~ '^[0-9]{1,18}$' THEN
        place := jsonb_build_object('offset', "position"::bigint);
    ELSE
        BEGIN
            moment := "position"::timestamptz;
        EXCEPTION
            WHEN data_exception THEN NULL;  -- said below
        END;
        IF moment IS NULL OR NOT isfinite(moment) THEN
            RAISE EXCEPTION '% is no place in a stream', quote_nullable("position")
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Give first, last, next, an offset, or a time such as '
                             '2026-01-31 12:00+00.';
        END IF;
        place := jsonb_build_object('time', extract(epoch FROM moment));
    END IF;
    RETURN howdah.submit_command(
        'reset_group', vhost, queue, place || jsonb_build_object('group', group_name));
END
$function$;
COMMENT ON FUNCTION howdah.reset_group(text, text, text, text) IS
    'Sends a consumer group of a stream that nobody reads by to another place: first, last, next, '
    'an offset or a time. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.end_session(client_id text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    queue_name text;
BEGIN
    SELECT s.queue_name INTO queue_name FROM howdah.session s
    WHERE s.vhost = end_session.vhost AND s.client_id = end_session.client_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no stored session % in virtual host %',
            quote_nullable(client_id), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object',
                  HINT = 'See howdah.session_status. A session that ends with its connection is in '
                         'the gateway''s memory only.';
    END IF;
    RETURN howdah.submit_command(
        'end_session', vhost, queue_name, jsonb_build_object('client_id', client_id));
END
$function$;
COMMENT ON FUNCTION howdah.end_session(text, text) IS
    'Ends an MQTT session with its subscriptions and all that waits for it, and disconnects its '
    'client. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.submit_binding(
    kind text, queue text, routing_key text, exchange text, arguments jsonb, vhost text
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF routing_key IS NULL OR octet_length(routing_key) > 65535 THEN
        RAISE EXCEPTION 'routing_key must be a text of at most 65535 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For none, write ''''.';
    END IF;
    IF jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'arguments must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For a headers exchange, for example ''{"x-match": "any", "a": 1}''.';
    END IF;
    IF exchange IS NULL OR exchange = '' THEN
        RAISE EXCEPTION 'the default exchange has one binding for each queue, and no others'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another exchange.';
    END IF;
    IF exchange NOT LIKE 'amq.%' AND NOT EXISTS (
        SELECT FROM howdah.exchange e
        WHERE e.vhost = submit_binding.vhost AND e.name = submit_binding.exchange
    ) THEN
        RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
            quote_literal(exchange), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Declare it first.';
    END IF;
    RETURN howdah.submit_command(
        kind, vhost, queue,
        jsonb_build_object(
            'exchange', exchange, 'routing_key', routing_key, 'arguments', arguments));
END
$function$;
COMMENT ON FUNCTION howdah.submit_binding(text, text, text, text, jsonb, text) IS
    'Asks the gateway for a binding. Internal: call bind(), bind_topic() or their opposites.';

CREATE OR REPLACE FUNCTION howdah.bind(
    queue text, routing_key text, exchange text DEFAULT 'amq.topic', arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_binding('bind', queue, routing_key, exchange, arguments, vhost)
$function$;
COMMENT ON FUNCTION howdah.bind(text, text, text, jsonb, text) IS
    'Binds a durable queue or stream to an exchange, as AMQP clients do. Returns the number of a '
    'command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.unbind(
    queue text, routing_key text, exchange text DEFAULT 'amq.topic', arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_binding('unbind', queue, routing_key, exchange, arguments, vhost)
$function$;
COMMENT ON FUNCTION howdah.unbind(text, text, text, jsonb, text) IS
    'Takes a binding away. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.bind_topic(queue text, topic_filter text, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.bind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;
COMMENT ON FUNCTION howdah.bind_topic(text, text, text) IS
    'Has a durable queue or stream take every message whose topic matches an MQTT filter, such as '
    'plant/+/temperature. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.unbind_topic(queue text, topic_filter text, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.unbind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;
COMMENT ON FUNCTION howdah.unbind_topic(text, text, text) IS
    'The opposite of bind_topic(). Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.submit_pause(kind text, queue text, vhost text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    submitted bigint;
BEGIN
    IF kind IS NULL OR kind NOT IN ('pause_queue', 'resume_queue') THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use pause_queue() or resume_queue().';
    END IF;
    IF NOT EXISTS (
        SELECT FROM howdah.queue q
        WHERE q.vhost = submit_pause.vhost AND q.name = submit_pause.queue
    ) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, requested_at)
    VALUES (
        submit_pause.kind, submit_pause.vhost, submit_pause.queue, '{}', session_user,
        clock_timestamp()
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
COMMENT ON FUNCTION howdah.submit_pause(text, text, text) IS
    'Asks the gateway to pause or resume a queue. Internal: call pause_queue() or resume_queue().';

CREATE OR REPLACE FUNCTION howdah.pause_queue(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_pause('pause_queue', queue, vhost)
$function$;
COMMENT ON FUNCTION howdah.pause_queue(text, text) IS
    'Stops deliveries from a durable queue or stream, over restarts, until resume_queue(). Messages '
    'still come in. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.resume_queue(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_pause('resume_queue', queue, vhost)
$function$;
COMMENT ON FUNCTION howdah.resume_queue(text, text) IS
    'Lets deliveries from a paused queue go on. Returns the number of a command; see '
    'command_status().';

CREATE OR REPLACE FUNCTION howdah.import_definitions(definitions jsonb, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    submitted bigint;
BEGIN
    IF jsonb_typeof(definitions) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'definitions must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'With the lists exchanges, queues and bindings, as RabbitMQ exports them.';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = import_definitions.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, requested_at)
    VALUES (
        'import_definitions', import_definitions.vhost, '',
        jsonb_build_object(
            'exchanges', coalesce(definitions -> 'exchanges', '[]'),
            'queues', coalesce(definitions -> 'queues', '[]'),
            'bindings', coalesce(definitions -> 'bindings', '[]')),
        session_user, clock_timestamp()
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
COMMENT ON FUNCTION howdah.import_definitions(jsonb, text) IS
    'Makes the exchanges, queues and bindings of a definitions file of one virtual host, as '
    'RabbitMQ exports it. Returns the number of a command; see command_status().';

CREATE OR REPLACE FUNCTION howdah.command_status(id bigint) RETURNS TABLE (
    kind text,
    vhost text,
    queue text,
    state text,
    requested_by text,
    requested_at timestamptz,
    done_at timestamptz,
    result jsonb,
    error text
)
-- Volatile, to see the command that the same statement makes: command_status(purge('orders')).
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT
            c.kind, c.vhost, c.queue,
            CASE WHEN c.done_at IS NULL THEN 'waiting' WHEN c.error IS NULL THEN 'done'
                 ELSE 'failed' END,
            c.requested_by, c.requested_at, c.done_at, c.result, c.error
        FROM howdah.command c WHERE c.id = command_status.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no command %', id
            USING ERRCODE = 'undefined_object',
                  HINT = 'The gateway forgets commands some time after they are done.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.command_status(bigint) IS
    'What became of a command: waiting, done or failed.';
