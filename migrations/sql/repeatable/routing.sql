-- Which durable queues a message would go to, worked out from the tables.

CREATE OR REPLACE FUNCTION howdah.key_matches(routing_key text, pattern text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $function$
    -- Each word has a dot in front: so no word at all, which # also is, needs no rule of its own.
    SELECT CASE WHEN routing_key = '' THEN '' ELSE '.' || routing_key END ~ ('^' || coalesce((
        SELECT string_agg(
            CASE w.word
                WHEN '*' THEN '\.[^.]*'
                WHEN '#' THEN '(\.[^.]*)*'
                ELSE '\.' || regexp_replace(w.word, '([][().*?{}|^$\\+#])', '\\\1', 'g')
            END, '' ORDER BY w.place)
        FROM unnest(string_to_array(pattern, '.')) WITH ORDINALITY AS w (word, place)
    ), '') || '$')
$function$;
COMMENT ON FUNCTION howdah.key_matches(text, text) IS
    'Whether a routing key matches a pattern of a topic exchange. Internal: for routed_queues().';

CREATE OR REPLACE FUNCTION howdah.headers_match(headers jsonb, arguments jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $function$
    SELECT CASE
        WHEN coalesce(arguments ->> 'x-match', 'all') LIKE 'all%' THEN coalesce(bool_and(m.holds), true)
        ELSE coalesce(bool_or(m.holds), false)
    END
    FROM (
        SELECT CASE
            WHEN jsonb_typeof(a.value) = 'null' THEN headers ? a.key
            ELSE coalesce(headers -> a.key = a.value, false)
        END AS holds
        FROM jsonb_each(arguments) AS a (key, value)
        WHERE a.key NOT IN ('x-match', 'x-howdah-types')
          AND (coalesce(arguments ->> 'x-match', '') LIKE '%-with-x' OR a.key NOT LIKE 'x-%')
    ) m
$function$;
COMMENT ON FUNCTION howdah.headers_match(jsonb, jsonb) IS
    'Whether headers match the arguments of a binding of a headers exchange. Internal: for '
    'routed_queues().';

CREATE OR REPLACE FUNCTION howdah.routed_queues(
    exchange text, routing_key text, headers jsonb DEFAULT '{}', vhost text DEFAULT '/'
) RETURNS TABLE (queue text, source text, pattern text, is_one_of_several boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_variable
DECLARE
    pending text[] := ARRAY[exchange];
    seen text[] := ARRAY[exchange];
    current_name text;
    current_kind text;
    alternate text;
    bound record;
    is_matched boolean;
BEGIN
    IF exchange IS NULL OR routing_key IS NULL OR jsonb_typeof(headers) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'give an exchange, a routing_key and headers that are a JSON object'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The default exchange is ''''.';
    END IF;
    WHILE cardinality(pending) > 0 AND cardinality(seen) <= 1000 LOOP
        current_name := pending[1];
        pending := pending[2:];
        SELECT CASE e.kind WHEN 'x-delayed-message' THEN e.arguments ->> 'x-delayed-type' ELSE e.kind END,
               e.arguments ->> 'alternate-exchange'
        INTO current_kind, alternate
        FROM howdah.exchange e WHERE e.vhost = routed_queues.vhost AND e.name = current_name;
        IF NOT FOUND THEN
            alternate := NULL;
            current_kind := CASE current_name
                WHEN '' THEN 'default' WHEN 'amq.direct' THEN 'direct' WHEN 'amq.fanout' THEN 'fanout'
                WHEN 'amq.topic' THEN 'topic' WHEN 'amq.headers' THEN 'headers'
                WHEN 'amq.match' THEN 'headers'
            END;
            IF current_kind IS NULL THEN
                CONTINUE WHEN current_name <> exchange;  -- it was deleted, or is not there yet
                RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
                    quote_literal(exchange), quote_nullable(vhost)
                    USING ERRCODE = 'undefined_object', HINT = 'See howdah.exchange.';
            END IF;
        END IF;
        is_matched := false;
        FOR bound IN
            SELECT b.destination_kind, b.destination, b.routing_key AS pattern
            FROM howdah.binding b
            WHERE b.vhost = routed_queues.vhost AND b.source = current_name
              AND CASE current_kind
                  WHEN 'direct' THEN b.routing_key = routed_queues.routing_key
                  WHEN 'headers' THEN howdah.headers_match(headers, b.arguments)
                  WHEN 'topic' THEN
                      howdah.key_matches(routed_queues.routing_key, b.routing_key)
                      -- Only the topic space hides $ topics from wildcards in front.
                      AND NOT (current_name = 'amq.topic' AND left(routed_queues.routing_key, 1) = '$'
                               AND split_part(b.routing_key, '.', 1) IN ('*', '#'))
                  ELSE true
              END
            UNION ALL
            SELECT 'queue', q.name, q.name FROM howdah.queue q
            WHERE current_kind = 'default' AND q.vhost = routed_queues.vhost
              AND q.name = routed_queues.routing_key
            UNION ALL
            SELECT 'queue', s.queue_name, f.filter
            FROM howdah.session s JOIN howdah.subscription f ON f.session_id = s.id
            WHERE current_name = 'amq.topic' AND s.vhost = routed_queues.vhost
              AND f.filter NOT LIKE '$share/%' AND f.filter NOT LIKE '$queue/%'
              AND howdah.topic_matches(howdah.slashed(routed_queues.routing_key), f.filter)
        LOOP
            is_matched := true;
            IF bound.destination_kind = 'exchange' THEN
                IF bound.destination <> ALL (seen) THEN
                    seen := seen || bound.destination;
                    pending := pending || bound.destination;
                END IF;
            ELSE
                queue := bound.destination;
                source := current_name;
                pattern := bound.pattern;
                is_one_of_several := current_kind LIKE 'x-%hash' OR current_kind LIKE 'x-%random';
                RETURN NEXT;
            END IF;
        END LOOP;
        IF NOT is_matched AND alternate IS NOT NULL AND alternate <> ALL (seen) THEN
            seen := seen || alternate;
            pending := pending || alternate;
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.routed_queues(text, text, jsonb, text) IS
    'The durable queues that a message would go to, by which exchange and which pattern: also those of '
    'stored MQTT sessions, without groups of shared subscriptions. Of an exchange that chooses by hash '
    'or by chance, all that it chooses among. What is in the gateway''s memory only is not there.';
