-- Bindings from SQL: a durable queue or stream that takes what an exchange or a topic filter lets
-- through.

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
    IF kind IS NULL OR kind <> ALL (
        ARRAY['purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind']
    ) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind() or '
                         'unbind().';
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
COMMENT ON FUNCTION howdah.submit_command(text, text, text, jsonb) IS
    'Asks the gateway for something. Internal: call purge(), redrive(), delete_queue(), '
    'declare_queue(), bind() or unbind().';
COMMENT ON COLUMN howdah.command.kind IS
    'purge, redrive, delete_queue, declare_queue, bind or unbind.';

CREATE FUNCTION howdah.filter_key(topic_filter text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    levels CONSTANT text[] := string_to_array(topic_filter, '/');
    level text;
    word text;
    words text[] := '{}';
BEGIN
    IF topic_filter IS NULL OR topic_filter = '' THEN
        RAISE EXCEPTION 'the topic filter is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF topic_filter ~ '^\$(queue|share)/' THEN
        RAISE EXCEPTION 'topic filter % names a queue or a share, which take no bindings',
            quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the topics themselves.';
    END IF;
    IF strpos(topic_filter, '%00') > 0 THEN
        RAISE EXCEPTION
            'topic filter % holds %%00, which stands for a character that no text can have',
            quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF cardinality(levels) > 256 OR octet_length(topic_filter) > 65535 THEN
        RAISE EXCEPTION 'the topic filter has more than 256 levels or 65535 bytes'
            USING ERRCODE = 'string_data_right_truncation';
    END IF;
    IF array_position(levels, '#') < cardinality(levels) THEN
        RAISE EXCEPTION 'topic filter % goes on after #', quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = '# must be the last level.';
    END IF;
    FOREACH level IN ARRAY levels LOOP
        IF level ~ '[+#]' AND length(level) > 1 THEN
            RAISE EXCEPTION 'topic filter % mixes a wildcard with other characters',
                quote_literal(topic_filter)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = '+ and # must each be a whole level.';
        END IF;
        -- $empty stands for the empty key as a whole topic, and for itself as a level of one.
        word := CASE WHEN level IN ('+', '#') THEN translate(level, '+', '*')
                     WHEN level ~ '^\$+empty$' THEN level
                     ELSE howdah.dotted(level) END;
        IF word IN ('*', '#') AND level NOT IN ('+', '#') THEN
            RAISE EXCEPTION
                'topic filter % has the level %, which a binding would take for a wildcard',
                quote_literal(topic_filter), quote_literal(level)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Write + in its place, and tell the topics apart by routing_key.';
        END IF;
        words := words || word;
    END LOOP;
    RETURN CASE WHEN topic_filter ~ '^\$+empty$' THEN howdah.dotted(topic_filter)
                ELSE array_to_string(words, '.') END;
END
$function$;
COMMENT ON FUNCTION howdah.filter_key(text) IS
    'Binding key of amq.topic that takes what an MQTT filter matches, or an error that says why '
    'there is none. Internal.';

CREATE FUNCTION howdah.submit_binding(
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

CREATE FUNCTION howdah.bind(
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

CREATE FUNCTION howdah.unbind(
    queue text, routing_key text, exchange text DEFAULT 'amq.topic', arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_binding('unbind', queue, routing_key, exchange, arguments, vhost)
$function$;
COMMENT ON FUNCTION howdah.unbind(text, text, text, jsonb, text) IS
    'Takes a binding away. Returns the number of a command; see command_status().';

CREATE FUNCTION howdah.bind_topic(queue text, topic_filter text, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.bind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;
COMMENT ON FUNCTION howdah.bind_topic(text, text, text) IS
    'Has a durable queue or stream take every message whose topic matches an MQTT filter, such as '
    'plant/+/temperature. Returns the number of a command; see command_status().';

CREATE FUNCTION howdah.unbind_topic(queue text, topic_filter text, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.unbind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;
COMMENT ON FUNCTION howdah.unbind_topic(text, text, text) IS
    'The opposite of bind_topic(). Returns the number of a command; see command_status().';

REVOKE ALL ON FUNCTION
    howdah.filter_key(text),
    howdah.submit_binding(text, text, text, text, jsonb, text),
    howdah.bind(text, text, text, jsonb, text),
    howdah.unbind(text, text, text, jsonb, text),
    howdah.bind_topic(text, text, text),
    howdah.unbind_topic(text, text, text)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    howdah.filter_key(text),
    howdah.submit_binding(text, text, text, text, jsonb, text),
    howdah.bind(text, text, text, jsonb, text),
    howdah.unbind(text, text, text, jsonb, text),
    howdah.bind_topic(text, text, text),
    howdah.unbind_topic(text, text, text)
    TO howdah_operator;
