-- Undoes 0009: one generation of the journal counts for all queues again, that of howdah.gateway.

DO $block$
BEGIN
    IF (SELECT count(DISTINCT s.generation) FROM howdah.shard s) <> 1 THEN
        RAISE EXCEPTION 'shards name several generations of the journal'
            USING HINT = 'Start a gateway that owns them all, stop it, and try again.';
    END IF;
END
$block$;

ALTER TABLE howdah.gateway ADD COLUMN generation integer;
UPDATE howdah.gateway SET generation = (SELECT max(s.generation) FROM howdah.shard s);
ALTER TABLE howdah.gateway ALTER COLUMN generation SET NOT NULL;
COMMENT ON COLUMN howdah.gateway.generation IS 'Generation of the journal tables that counts.';
COMMENT ON COLUMN howdah.settlement.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.redelivery.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.deduplication.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.packet.generation IS 'Generation; partition key. Only gateway''s own counts.';

DROP FUNCTION
    howdah.adopt_segments(integer),
    howdah.attach_generation(integer),
    howdah.create_segment(bigint, integer),
    howdah.generation_of(bigint),
    howdah.left_segments(bigint),
    howdah.lock_segment(integer, integer),
    howdah.open_generation(integer),
    howdah.release_segment(integer, integer),
    howdah.shard_of(text, text, text),
    howdah.unused_generations();

CREATE OR REPLACE FUNCTION howdah.create_segment(p_queue_id bigint DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    created integer;
BEGIN
    IF p_queue_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM howdah.queue q WHERE q.id = p_queue_id AND q.kind = 'stream') THEN
        RAISE EXCEPTION 'there is no stream with queue id %', p_queue_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'Only streams have segments of their own; give null for the shared ones.';
    END IF;
    INSERT INTO howdah.segment (queue_id) VALUES (p_queue_id) RETURNING id INTO created;
    PERFORM howdah.attach_leaf('message', 'segment_id', created);
    PERFORM howdah.attach_leaf('message_body', 'segment_id', created);
    RETURN created;
END
$function$;
COMMENT ON FUNCTION howdah.create_segment(bigint) IS
    'Opens a segment: of that stream, or with null one that all classic queues share. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.seal_segment(
    p_segment_id integer, p_messages bigint, p_bytes bigint, p_newest_at timestamptz
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE howdah.segment
    SET sealed_at = coalesce(sealed_at, now()), messages = p_messages, bytes = p_bytes,
        newest_at = p_newest_at
    WHERE id = p_segment_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no segment %', p_segment_id USING ERRCODE = 'undefined_object';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.seal_segment(integer, bigint, bigint, timestamptz) IS
    'Notes that a segment is closed for writing, and what is in it. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.retire_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE howdah.segment SET retired_at = coalesce(retired_at, now())
    WHERE id = p_segment_id AND sealed_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no sealed segment %', p_segment_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'A segment that is still written to cannot be retired.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.retire_segment(integer) IS
    'Notes since when nobody needs a segment that a reader keeps from being dropped. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.lock_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- All that dropping it will need, before anything is copied out of it in vain; parents before
    -- partitions and message before message_body, as readers take them: else they could deadlock.
    LOCK TABLE ONLY howdah.message, ONLY howdah.message_body IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'LOCK TABLE howdah.%I, howdah.%I IN ACCESS EXCLUSIVE MODE',
        format('message_%s', p_segment_id), format('message_body_%s', p_segment_id));
END
$function$;
COMMENT ON FUNCTION howdah.lock_segment(integer) IS
    'Keeps everyone out of a segment until this transaction ends, to copy what is alive in it and '
    'drop it. Set lock_timeout first. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.open_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    journal name;
BEGIN
    FOREACH journal IN ARRAY
        ARRAY['settlement', 'redelivery', 'deduplication', 'packet', 'commit_mark']
    LOOP
        -- A gateway that was stopped half way does it again.
        IF to_regclass(format('howdah.%I', format('%s_%s', journal, p_generation))) IS NULL THEN
            PERFORM howdah.attach_leaf(journal, 'generation', p_generation);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.open_generation(integer) IS
    'Makes the journal partitions of a generation, those that are not there yet. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.drop_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    journal name;
BEGIN
    IF p_generation >= (SELECT g.generation FROM howdah.gateway g) THEN
        RAISE EXCEPTION 'generation % is in use', p_generation
            USING ERRCODE = 'object_in_use',
                  HINT = 'Only generations before the one in howdah.gateway may be dropped.';
    END IF;
    FOREACH journal IN ARRAY ARRAY['settlement', 'redelivery', 'deduplication', 'packet'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('%s_%s', journal, p_generation));
    END LOOP;
    -- The marks of the generation itself stay for one more: transactions that began in it leave theirs
    -- there, also when the next one has begun.
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('commit_mark_%s', p_generation - 1));
END
$function$;
COMMENT ON FUNCTION howdah.drop_generation(integer) IS
    'Drops the journal partitions of a generation that no longer counts. Set lock_timeout first. '
    'For the gateway.';

CREATE OR REPLACE FUNCTION howdah.group_names(queue_id bigint, view_key uuid) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1 ROWS 2
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
DECLARE
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    reached text;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    -- From one group to the next by index, however many rows each has.
    SELECT min(j.group_name) INTO reached FROM howdah.settlement j
    WHERE j.queue_id = group_names.queue_id AND j.generation = current_generation;
    WHILE reached IS NOT NULL LOOP
        RETURN NEXT reached;
        SELECT min(j.group_name) INTO reached FROM howdah.settlement j
        WHERE j.queue_id = group_names.queue_id AND j.generation = current_generation
          AND j.group_name > reached;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.group_names(bigint, uuid) IS
    'Consumer groups of a stream that have settled something. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.settled(queue_id bigint, group_name text, view_key uuid)
RETURNS TABLE (floor bigint, acked int8multirange, written_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1 ROWS 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    first_seq CONSTANT bigint := coalesce((
        SELECT f.seq FROM howdah.settlement f
        WHERE f.queue_id = settled.queue_id AND f.group_name = settled.group_name AND f.is_full
          AND f.generation = current_generation
        ORDER BY f.seq DESC LIMIT 1), 0);
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN QUERY
        SELECT max(j.floor), range_agg(r.span), max(j.written_at)
        FROM howdah.settlement j
        LEFT JOIN LATERAL unnest(j.acked) AS r(span) ON true
        WHERE j.queue_id = settled.queue_id AND j.group_name = settled.group_name
          AND j.generation = current_generation AND j.seq >= first_seq;
END
$function$;
COMMENT ON FUNCTION howdah.settled(bigint, text, uuid) IS
    'What a group has settled, worked out from the journal; nulls: nothing. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.messages_between(
    queue_id bigint, first bigint, past bigint, view_key uuid
) RETURNS TABLE (
    "offset" bigint,
    enqueued_at timestamptz,
    not_before timestamptz,
    expires_at timestamptz,
    delivery_count integer,
    failed_because text,
    priority smallint,
    durable boolean,
    exchange text,
    routing_key text,
    content_type text,
    content_encoding text,
    message_id text,
    correlation_id text,
    reply_to text,
    subject text,
    app_id text,
    user_id text,
    group_id text,
    created_at timestamptz,
    headers jsonb,
    publisher text,
    form smallint,
    deaths jsonb,
    segment_id integer,
    body bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1 ROWS 10
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] :=
        ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL);
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN QUERY
        SELECT
            m."offset", m.enqueued_at, coalesce(d.not_before, m.not_before), m.expires_at,
            coalesce(d.count, 0), d.reason, m.priority, m.durable, m.exchange, m.routing_key,
            m.content_type, m.content_encoding, m.message_id, m.correlation_id, m.reply_to,
            m.subject, m.app_id, m.user_id, m.group_id, m.created_at, m.headers, m.publisher,
            m.form, m.deaths, m.segment_id,
            CASE WHEN m.body_id IS NULL THEN m.body ELSE (
                SELECT b.body FROM howdah.message_body b
                WHERE b.id = m.body_id AND b.segment_id = m.segment_id
            ) END
        FROM howdah.message m
        LEFT JOIN LATERAL (
            SELECT f.count, f.not_before, f.reason
            FROM howdah.redelivery f
            WHERE f.generation = current_generation
              AND f.queue_id = m.queue_id AND f."offset" = m."offset"
            ORDER BY f.count DESC, f.amended DESC LIMIT 1
        ) d ON true
        WHERE m.queue_id = messages_between.queue_id
          AND m."offset" >= messages_between.first AND m."offset" < messages_between.past
          AND m.segment_id <> ALL (retired)
        ORDER BY m."offset";
END
$function$;
COMMENT ON FUNCTION howdah.messages_between(bigint, bigint, bigint, uuid) IS
    'Messages of a queue in a range of offsets, with what is known of their deliveries. '
    'Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.delayed_count(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off  -- nobody counts how few have a time, so the planner expects a third
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] :=
        ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL);
    settled_below bigint;
    settled_above int8multirange;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    IF NOT EXISTS (
        SELECT FROM howdah.message m
        WHERE m.queue_id = delayed_count.queue_id AND m.not_before > now()
    ) AND NOT EXISTS (
        SELECT FROM howdah.redelivery r
        WHERE r.queue_id = delayed_count.queue_id AND r.not_before > now()
          AND r.generation = current_generation
    ) THEN
        RETURN 0;
    END IF;
    -- Purged before its time, a message is settled. Of a stream nothing ever is.
    SELECT s.floor, s.acked INTO settled_below, settled_above
    FROM howdah.queue q CROSS JOIN LATERAL howdah.settled(q.id, '', delayed_count.view_key) s
    WHERE q.id = delayed_count.queue_id AND q.kind = 'classic';
    -- A delivery that failed, or that a consumer put off, decides over what the publisher asked for.
    RETURN (
        SELECT count(*) FROM howdah.message m
        WHERE m.queue_id = delayed_count.queue_id AND m.not_before > now()
          AND m."offset" >= coalesce(settled_below, 0)
          AND NOT m."offset" <@ coalesce(settled_above, '{}')
          AND m.segment_id <> ALL (retired)
          AND (
              SELECT r.not_before FROM howdah.redelivery r
              WHERE r.generation = current_generation
                AND r.queue_id = m.queue_id AND r."offset" = m."offset"
              ORDER BY r.count DESC, r.amended DESC LIMIT 1
          ) IS NULL
    ) + (
        SELECT count(*) FROM howdah.redelivery r
        WHERE r.generation = current_generation
          AND r.queue_id = delayed_count.queue_id AND r.not_before > now()
          AND r."offset" >= coalesce(settled_below, 0)
          AND NOT r."offset" <@ coalesce(settled_above, '{}')
          AND NOT EXISTS (
              SELECT FROM howdah.redelivery n
              WHERE n.generation = current_generation
                AND n.queue_id = r.queue_id AND n."offset" = r."offset"
                AND (n.count, n.amended) > (r.count, r.amended))
    );
END
$function$;
COMMENT ON FUNCTION howdah.delayed_count(bigint, uuid) IS
    'How many messages of a queue are not due yet: by their publisher''s wish, after a failed '
    'delivery, or because a consumer put them off. Internal: for the views.';

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
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    unsettled int8multirange := int8multirange(int8range(coalesce(from_offset, 0), NULL));
    span int8range;
    retired CONSTANT integer[] :=
        ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL);
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

CREATE OR REPLACE FUNCTION howdah.torn_tables() RETURNS TABLE (
    missing text, parent text, number integer, stands_in text
)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT format('%s_%s', w.parent, w.number), w.parent, w.number, c.relname::text
    FROM (
        SELECT t.parent, s.id AS number
        FROM howdah.segment s CROSS JOIN (VALUES ('message'), ('message_body')) AS t (parent)
        UNION ALL
        SELECT t.parent, g.generation
        FROM howdah.gateway g
        CROSS JOIN (
            VALUES ('settlement'), ('redelivery'), ('deduplication'), ('packet'), ('commit_mark')
        ) AS t (parent)
    ) w
    LEFT JOIN (pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid)
        ON i.inhparent = to_regclass(format('howdah.%I', w.parent))
       AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%s)', w.number)
    WHERE c.relname IS DISTINCT FROM format('%s_%s', w.parent, w.number)
    ORDER BY w.parent, w.number
$function$;
COMMENT ON FUNCTION howdah.torn_tables() IS
    'Partitions that should be there and are not: somebody dropped, detached or renamed them (then '
    'stands_in says what they are called now).';

CREATE OR REPLACE FUNCTION howdah.mend_table(p_parent text, p_number integer, p_stands_in text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    leaf CONSTANT name := format('%s_%s', p_parent, p_number);
BEGIN
    IF p_stands_in IS NOT NULL THEN
        EXECUTE format('ALTER TABLE howdah.%I RENAME TO %I', p_stands_in, leaf);
    ELSIF to_regclass(format('howdah.%I', leaf)) IS NOT NULL THEN
        EXECUTE format(
            'ALTER TABLE howdah.%I ATTACH PARTITION howdah.%I FOR VALUES IN (%s)',
            p_parent, leaf, p_number);
    ELSIF p_parent = 'message' THEN
        -- What was in it is given up, and the segment with it; the gateway opens another.
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_body_%s', p_number));
        DELETE FROM howdah.segment s WHERE s.id = p_number;
    ELSIF p_parent = 'message_body' THEN
        IF to_regclass(format('howdah.message_%s', p_number)) IS NOT NULL THEN
            EXECUTE format(
                'DELETE FROM howdah.%I WHERE body_id IS NOT NULL', format('message_%s', p_number));
            PERFORM howdah.attach_leaf('message_body', 'segment_id', p_number);
        END IF;
    ELSE
        PERFORM howdah.open_generation(p_number);
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.mend_table(text, integer, text) IS
    'Puts one partition of torn_tables() right: by its name, its place, or without what was in it. '
    'Internal.';

CREATE OR REPLACE FUNCTION howdah.browse(
    queue text,
    from_offset bigint DEFAULT NULL,
    scan integer DEFAULT 1000,
    newest_first boolean DEFAULT false,
    with_settled boolean DEFAULT false,
    vhost text DEFAULT '/'
) RETURNS TABLE (
    "offset" bigint,
    state text,
    enqueued_at timestamptz,
    not_before timestamptz,
    expires_at timestamptz,
    delivery_count integer,
    failed_because text,
    priority smallint,
    durable boolean,
    exchange text,
    routing_key text,
    topic text,
    content_type text,
    content_encoding text,
    message_id text,
    correlation_id text,
    reply_to text,
    subject text,
    app_id text,
    user_id text,
    group_id text,
    created_at timestamptz,
    headers jsonb,
    publisher text,
    protocol text,
    deaths jsonb,
    died_in text,
    reason text,
    died_at timestamptz,
    deaths_in_all bigint,
    failure text,
    segment_id integer,
    body_bytes integer,
    body bytea
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    target howdah.queue;
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    candidates integer[];
    settled int8multirange := '{}';
    wanted int8multirange;
    span int8range;
    missing integer := scan;
    more_offsets bigint[];
    more_segments integer[];
    offsets bigint[] := '{}';
    segments integer[] := '{}';
BEGIN
    IF scan IS NULL OR scan NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'scan must be between 1 and 1000000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO target FROM howdah.queue q WHERE q.vhost = browse.vhost AND q.name = browse.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    candidates := ARRAY(
        SELECT g.id FROM howdah.segment g
        WHERE g.retired_at IS NULL
          AND g.queue_id IS NOT DISTINCT FROM CASE target.kind WHEN 'stream' THEN target.id END);
    IF target.kind = 'classic' THEN
        SELECT int8multirange(int8range(NULL, s.floor)) + s.acked INTO settled
        FROM howdah.settlement_state s WHERE s.queue_id = target.id;
    END IF;
    wanted := CASE
        WHEN newest_first THEN int8multirange(int8range(NULL, from_offset, '(]'))
        ELSE int8multirange(int8range(from_offset, NULL))
    END;
    IF NOT with_settled THEN
        wanted := wanted - settled;
    END IF;
    -- One range of the primary key after the other, until there is enough.
    FOR span IN
        SELECT r.span FROM unnest(wanted) AS r(span)
        ORDER BY CASE WHEN newest_first THEN upper(r.span) END DESC NULLS FIRST,
                 lower(r.span) NULLS FIRST
    LOOP
        EXIT WHEN missing <= 0;
        IF newest_first THEN
            SELECT array_agg(p."offset"), array_agg(DISTINCT p.segment_id)
            INTO more_offsets, more_segments
            FROM (
                SELECT m."offset", m.segment_id FROM howdah.message m
                WHERE m.queue_id = target.id AND m."offset" >= coalesce(lower(span), 0)
                  AND m."offset" < coalesce(upper(span), 9223372036854775807)
                  AND m.segment_id = ANY (candidates)
                ORDER BY m."offset" DESC LIMIT missing
            ) p;
        ELSE
            SELECT array_agg(p."offset"), array_agg(DISTINCT p.segment_id)
            INTO more_offsets, more_segments
            FROM (
                SELECT m."offset", m.segment_id FROM howdah.message m
                WHERE m.queue_id = target.id AND m."offset" >= coalesce(lower(span), 0)
                  AND m."offset" < coalesce(upper(span), 9223372036854775807)
                  AND m.segment_id = ANY (candidates)
                ORDER BY m."offset" LIMIT missing
            ) p;
        END IF;
        offsets := offsets || coalesce(more_offsets, '{}');
        segments := segments || coalesce(more_segments, '{}');
        missing := scan - cardinality(offsets);
    END LOOP;
    RETURN QUERY
        SELECT
            m."offset",
            CASE
                WHEN m."offset" <@ settled THEN 'settled'
                WHEN m.expires_at <= now() AND target.kind = 'classic' THEN 'expired'
                WHEN coalesce(d.not_before, m.not_before) > now() THEN 'delayed'
                ELSE 'ready'
            END,
            m.enqueued_at, coalesce(d.not_before, m.not_before), m.expires_at, coalesce(d.count, 0),
            d.reason, m.priority, m.durable, m.exchange, m.routing_key,
            CASE m.exchange WHEN 'amq.topic' THEN howdah.slashed(m.routing_key) END,
            m.content_type, m.content_encoding, m.message_id, m.correlation_id, m.reply_to,
            m.subject, m.app_id, m.user_id, m.group_id, m.created_at, m.headers, m.publisher,
            howdah.protocol_name(m.form), m.deaths,
            m.deaths -> 0 ->> 'queue', m.deaths -> 0 ->> 'reason',
            to_timestamp((m.deaths -> 0 ->> 'time')::double precision),
            (SELECT sum(coalesce((e.death ->> 'count')::bigint, 1))
             FROM jsonb_array_elements(m.deaths) AS e(death))::bigint,
            howdah.failure_text(m.headers), m.segment_id, octet_length(b.body), b.body
        FROM howdah.message m
        CROSS JOIN LATERAL (
            SELECT CASE WHEN m.body_id IS NULL THEN m.body ELSE (
                SELECT l.body FROM howdah.message_body l
                WHERE l.id = m.body_id AND l.segment_id = m.segment_id
            ) END AS body
        ) b
        LEFT JOIN LATERAL (
            SELECT f.count, f.not_before, f.reason
            FROM howdah.redelivery f
            WHERE f.generation = current_generation
              AND f.queue_id = m.queue_id AND f."offset" = m."offset"
            ORDER BY f.count DESC, f.amended DESC LIMIT 1
        ) d ON true
        WHERE m.queue_id = target.id AND m."offset" = ANY (offsets)
          AND m.segment_id = ANY (segments)
        ORDER BY CASE WHEN newest_first THEN -m."offset" ELSE m."offset" END;
END
$function$;
COMMENT ON FUNCTION howdah.browse(text, bigint, integer, boolean, boolean, text) IS
    'Messages of a queue, from an offset on or, newest first, from there back; of a classic queue the '
    'unsettled ones, or with_settled all that are still stored. Looks at scan messages at most: ask '
    'on from the last offset. Changes nothing.';

CREATE OR REPLACE FUNCTION howdah.offset_at(queue text, "time" timestamptz, vhost text DEFAULT '/')
RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_variable
DECLARE
    target howdah.queue;
    candidates integer[];
    low bigint;
    past bigint;
    middle bigint;
    found_offset bigint;
    found_time timestamptz;
BEGIN
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = offset_at.vhost AND q.name = offset_at.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    candidates := ARRAY(
        SELECT g.id FROM howdah.segment g
        WHERE g.retired_at IS NULL
          AND g.queue_id IS NOT DISTINCT FROM CASE target.kind WHEN 'stream' THEN target.id END);
    SELECT m."offset" INTO low FROM howdah.message m
    WHERE m.queue_id = target.id AND m.segment_id = ANY (candidates)
    ORDER BY m."offset" LIMIT 1;
    SELECT m."offset" + 1 INTO past FROM howdah.message m
    WHERE m.queue_id = target.id AND m.segment_id = ANY (candidates)
    ORDER BY m."offset" DESC LIMIT 1;
    IF low IS NULL THEN
        RETURN 0;
    END IF;
    -- Offsets and times have one order: halve the range, some forty times at most.
    WHILE low < past LOOP
        middle := low + (past - low) / 2;
        SELECT m."offset", m.enqueued_at INTO found_offset, found_time FROM howdah.message m
        WHERE m.queue_id = target.id AND m."offset" >= middle AND m.segment_id = ANY (candidates)
        ORDER BY m."offset" LIMIT 1;
        IF found_time < "time" THEN
            low := found_offset + 1;
        ELSE
            past := middle;
        END IF;
    END LOOP;
    RETURN low;
END
$function$;
COMMENT ON FUNCTION howdah.offset_at(text, timestamptz, text) IS
    'The offset from which on the messages of a queue entered it at that time or later.';

CREATE OR REPLACE FUNCTION howdah.message_life(queue text, "offset" bigint, vhost text DEFAULT '/')
RETURNS TABLE (at timestamptz, event text, detail jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    target howdah.queue;
    current_generation CONSTANT integer := (SELECT g.generation FROM howdah.gateway g);
    message howdah.message;
BEGIN
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = message_life.vhost AND q.name = message_life.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    SELECT * INTO message FROM howdah.message m
    WHERE m.queue_id = target.id AND m."offset" = message_life."offset"
    ORDER BY m.segment_id DESC LIMIT 1;
    IF FOUND THEN
        RETURN QUERY
            SELECT message.created_at, 'created', jsonb_build_object('publisher', message.publisher)
            WHERE message.created_at IS NOT NULL
            UNION ALL
            SELECT to_timestamp((d.death ->> 'time')::double precision), 'died', d.death
            FROM jsonb_array_elements(message.deaths) AS d(death)
            UNION ALL
            SELECT message.enqueued_at, 'enqueued', jsonb_strip_nulls(jsonb_build_object(
                'queue', target.name, 'offset', message."offset", 'exchange', message.exchange,
                'routing_key', message.routing_key, 'publisher', message.publisher,
                'protocol', howdah.protocol_name(message.form), 'segment', message.segment_id))
            UNION ALL
            SELECT message.not_before, 'due', '{}'::jsonb WHERE message.not_before IS NOT NULL
            UNION ALL
            SELECT message.expires_at, 'expires', '{}'::jsonb WHERE message.expires_at IS NOT NULL;
    END IF;
    RETURN QUERY
        SELECT r.written_at, CASE WHEN r.amended > 0 THEN 'amended' ELSE 'delivery failed' END,
               jsonb_strip_nulls(jsonb_build_object(
                   'count', r.count, 'reason', r.reason, 'not_before', r.not_before))
        FROM howdah.redelivery r
        WHERE r.generation = current_generation AND r.queue_id = target.id
          AND r."offset" = message_life."offset";
    RETURN QUERY
        SELECT f.since, 'in flight', jsonb_strip_nulls(jsonb_build_object(
            'group', f.group_name, 'tag', f.tag, 'protocol', f.protocol, 'user', f.user_name,
            'client', f.client, 'address', f.address))
        FROM howdah.in_flight f
        WHERE f.queue_id = target.id AND f."offset" = message_life."offset";
    -- The first row of the journal that has it: when a generation begins anew, that is its first row.
    RETURN QUERY
        SELECT s.written_at, 'settled', jsonb_strip_nulls(jsonb_build_object(
            'group', nullif(n.group_name, ''), 'at_or_before', nullif(s.is_full, false)))
        FROM (
            SELECT '' AS group_name WHERE target.kind = 'classic'
            UNION ALL
            SELECT g.group_name
            FROM howdah.group_names(target.id, (TABLE howdah.view_key)) AS g(group_name)
            WHERE target.kind = 'stream'
        ) n
        CROSS JOIN LATERAL (
            SELECT j.written_at, j.is_full FROM howdah.settlement j
            WHERE j.generation = current_generation AND j.queue_id = target.id
              AND j.group_name = n.group_name
              AND (j.floor > message_life."offset" OR j.acked @> message_life."offset")
            ORDER BY j.seq LIMIT 1
        ) s;
END
$function$;
COMMENT ON FUNCTION howdah.message_life(text, bigint, text) IS
    'What log and journal know of one message: created, died elsewhere before, enqueued, deliveries '
    'that failed, in whose hands it is, settled. The order is not by time; sort by "at".';

COMMENT ON FUNCTION howdah.drop_segment(integer) IS
    'Drops a segment with everything in it. Set lock_timeout first. For the gateway.';
REVOKE ALL ON FUNCTION
    howdah.create_segment(bigint), howdah.lock_segment(integer), howdah.open_generation(integer)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    howdah.create_segment(bigint), howdah.lock_segment(integer), howdah.drop_segment(integer),
    howdah.open_generation(integer)
    TO howdah_gateway;

ALTER TABLE howdah.segment DROP COLUMN node_id, DROP COLUMN needed_by;
ALTER TABLE howdah.retained DROP COLUMN shard;
ALTER TABLE howdah.will DROP COLUMN shard;
ALTER TABLE howdah.session DROP COLUMN shard;
ALTER TABLE howdah.queue DROP COLUMN shard;
DROP TABLE howdah.shard, howdah.journal_generation;
