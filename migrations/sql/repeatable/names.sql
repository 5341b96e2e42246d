-- Names and bodies as people read them: topics, routing keys, protocols, texts.

CREATE OR REPLACE FUNCTION howdah.protocol_name(form smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE form
        WHEN 0 THEN 'SQL'
        WHEN 1 THEN 'MQTT 3'
        WHEN 2 THEN 'MQTT 5'
        WHEN 3 THEN 'AMQP 0.9.1'
        WHEN 4 THEN 'AMQP 1.0'
    END
$function$;
COMMENT ON FUNCTION howdah.protocol_name(smallint) IS
    'Name of the protocol that a message was published with, from its column form.';

-- Topics are written a/b/c (MQTT) or a.b.c (AMQP): dots and slashes trade places. What the slash form
-- cannot hold (+ and #) is written with a percent sign there, and what looks like such an escape
-- gets one 25 more, so that every key has its own topic.
CREATE OR REPLACE FUNCTION howdah.slashed(routing_key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE
        WHEN routing_key = '' THEN '$empty'
        WHEN routing_key ~ '^\$+empty$' THEN '$' || routing_key
        ELSE translate(
            replace(replace(
                regexp_replace(routing_key, '%((?:25)*(?:2B|23|00))', '%25\1', 'g'),
                '+', '%2B'), '#', '%23'),
            './', '/.')
    END
$function$;
COMMENT ON FUNCTION howdah.slashed(text) IS 'MQTT topic of a routing key of amq.topic.';

CREATE OR REPLACE FUNCTION howdah.dotted(topic text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE
        WHEN topic = '$empty' THEN ''
        WHEN topic ~ '^\$+empty$' THEN substr(topic, 2)
        ELSE translate(
            regexp_replace(
                replace(replace(topic, '%2B', '+'), '%23', '#'),
                '%25((?:25)*(?:2B|23|00))', '%\1', 'g'),
            './', '/.')
    END
$function$;
COMMENT ON FUNCTION howdah.dotted(text) IS
    'Routing key of amq.topic that an MQTT topic stands for; the reverse of slashed().';

CREATE OR REPLACE FUNCTION howdah.topic_key(topic text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF topic IS NULL OR topic = '' THEN
        RAISE EXCEPTION 'the topic is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF topic ~ '[+#]' THEN
        RAISE EXCEPTION 'topic % has a wildcard in it', quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Publish to a name without + and #.';
    END IF;
    IF topic LIKE '$%' THEN
        RAISE EXCEPTION 'topic % begins with $, and those are the gateway''s own',
            quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'To publish into a queue, use publish(queue, body).';
    END IF;
    IF strpos(topic, '%00') > 0 THEN
        RAISE EXCEPTION 'topic % holds %%00, which stands for a character that no text can have',
            quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF octet_length(topic) > 65535 THEN
        RAISE EXCEPTION 'the topic is longer than 65535 bytes'
            USING ERRCODE = 'string_data_right_truncation';
    END IF;
    RETURN howdah.dotted(topic);
END
$function$;
COMMENT ON FUNCTION howdah.topic_key(text) IS
    'Routing key of a topic that may be published to, or an error that says why not. Internal.';

CREATE OR REPLACE FUNCTION howdah.filter_key(topic_filter text) RETURNS text
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

CREATE OR REPLACE FUNCTION howdah.body_text(body bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $function$
BEGIN
    RETURN convert_from(body, 'UTF8');
EXCEPTION
    WHEN character_not_in_repertoire OR untranslatable_character THEN
        RETURN NULL;
END
$function$;
COMMENT ON FUNCTION howdah.body_text(bytea) IS 'A body as text; null if it is not UTF-8.';

CREATE OR REPLACE FUNCTION howdah.shard_of(vhost text, kind text, name text) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT (get_byte(sha256(convert_to(concat_ws(chr(10), vhost, kind, name), 'UTF8')), 0) & 63)::smallint
$function$;
COMMENT ON FUNCTION howdah.shard_of(text, text, text) IS
    'Shard that a name hashes to: of a session (by client), group, retained message (by topic) or queue.';
