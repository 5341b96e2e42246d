-- Functions that the views call. They are functions for the planner's sake: a view over hundreds of
-- segments has a plan with thousands of nodes whose estimated cost is above jit_above_cost, and a stock
-- PostgreSQL took 22 s to compile what runs in 0.3 s. The plan of a function is small and kept, never
-- asks for JIT, and costs the planner of the view next to nothing.
--
-- Why each takes the key of howdah.view_key: GRANT SELECT on a view shall be all that its reader needs.
-- PostgreSQL reads the tables of a view with the rights of the view's owner, but calls its functions with
-- those of the reader, so these must be open to everybody; and they read the log with the rights of their
-- owner, so they must not answer to everybody. A view hands over the key, by reading a table that its
-- readers may not read, and check_view_key() refuses every other caller. A look at the caller's rights
-- could not take its place: whoever reads a DBA's own view over one of ours needs no right on ours, and a
-- function learns nothing of the view that it is called from.

CREATE OR REPLACE FUNCTION howdah.check_view_key(view_key uuid) RETURNS void
LANGUAGE plpgsql STABLE
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM howdah.view_key k WHERE k.value = check_view_key.view_key) THEN
        RAISE EXCEPTION 'this function is for the views of schema howdah'
            USING ERRCODE = 'insufficient_privilege', HINT = 'Ask a view, such as howdah.queue_status.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.check_view_key(uuid) IS
    'Raises insufficient_privilege for whoever does not call through a view. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.generation_of(queue_id bigint) RETURNS integer
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT s.generation FROM howdah.queue q JOIN howdah.shard s ON s.id = q.shard
    WHERE q.id = generation_of.queue_id
$function$;
COMMENT ON FUNCTION howdah.generation_of(bigint) IS
    'Generation of the journal that counts for a queue: that of its shard. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.left_segments(queue_id bigint) RETURNS integer[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT coalesce(array_agg(g.id), '{}')
    FROM howdah.queue q JOIN howdah.segment g ON g.retired_at IS NOT NULL OR NOT q.shard = ANY (g.needed_by)
    WHERE q.id = left_segments.queue_id
$function$;
COMMENT ON FUNCTION howdah.left_segments(bigint) IS
    'Segments in which no message of a queue counts any more, whatever lies there. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.oldest_offset(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m."offset" FROM howdah.message m
        WHERE m.queue_id = oldest_offset.queue_id ORDER BY m."offset" LIMIT 1);
END
$function$;
COMMENT ON FUNCTION howdah.oldest_offset(bigint, uuid) IS
    'Offset of the oldest message of a queue that is on disk; null: there is none. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.newest_offset(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m."offset" FROM howdah.message m
        WHERE m.queue_id = newest_offset.queue_id ORDER BY m."offset" DESC LIMIT 1);
END
$function$;
COMMENT ON FUNCTION howdah.newest_offset(bigint, uuid) IS
    'Offset of the newest message of a queue that is on disk; null: there is none. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.enqueued_at(queue_id bigint, from_offset bigint, view_key uuid) RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m.enqueued_at FROM howdah.message m
        WHERE m.queue_id = enqueued_at.queue_id AND m."offset" >= enqueued_at.from_offset
        ORDER BY m."offset" LIMIT 1);
END
$function$;
COMMENT ON FUNCTION howdah.enqueued_at(bigint, bigint, uuid) IS
    'When the first message of a queue from an offset on entered it; null: there is none. '
    'Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.average_bytes(queue_id bigint, from_offset bigint, view_key uuid) RETURNS numeric
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT avg(100 + p.bytes)
        FROM (
            SELECT coalesce(pg_column_size(m.headers), 0) + coalesce(octet_length(m.native), 0)
                   + coalesce(octet_length(m.body), (
                       SELECT octet_length(b.body) FROM howdah.message_body b
                       WHERE b.id = m.body_id AND b.segment_id = m.segment_id
                   ), 0) AS bytes
            FROM howdah.message m
            WHERE m.queue_id = average_bytes.queue_id AND m."offset" >= average_bytes.from_offset
            ORDER BY m."offset" LIMIT 16
        ) p);
END
$function$;
COMMENT ON FUNCTION howdah.average_bytes(bigint, bigint, uuid) IS
    'About how large the messages of a queue are, judged by 16 from an offset on. Internal: for the views.';

CREATE OR REPLACE FUNCTION howdah.group_names(queue_id bigint, view_key uuid) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1 ROWS 2
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
DECLARE
    current_generation CONSTANT integer := howdah.generation_of(group_names.queue_id);
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
    current_generation CONSTANT integer := howdah.generation_of(settled.queue_id);
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

CREATE OR REPLACE FUNCTION howdah.unsettled_chunks(queue_id bigint, view_key uuid)
RETURNS TABLE (first bigint, past bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1 ROWS 1
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    chunk CONSTANT bigint := 1000;
    past CONSTANT bigint := howdah.newest_offset(queue_id, unsettled_chunks.view_key) + 1;
    spans int8multirange;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    SELECT int8multirange(int8range(s.floor, past)) - s.acked INTO spans
    FROM howdah.settlement_state s
    WHERE s.queue_id = unsettled_chunks.queue_id AND s.kind = 'classic' AND s.floor < past;
    IF NOT FOUND THEN
        SELECT int8multirange(int8range(howdah.oldest_offset(q.id, unsettled_chunks.view_key), past))
        INTO spans
        FROM howdah.queue q WHERE q.id = unsettled_chunks.queue_id AND q.kind = 'stream';
    END IF;
    -- Between what is settled, each chunk a range of the primary key: whoever wants ten messages
    -- of ten million reads one chunk.
    RETURN QUERY
        SELECT c.first, least(c.first + chunk, upper(r.span))
        FROM unnest(spans) AS r(span)
        CROSS JOIN LATERAL generate_series(lower(r.span), upper(r.span) - 1, chunk) AS c(first);
END
$function$;
COMMENT ON FUNCTION howdah.unsettled_chunks(bigint, uuid) IS
    'Ranges of offsets that a queue has still messages at, cut small. Internal: for the views.';

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
    current_generation CONSTANT integer := howdah.generation_of(messages_between.queue_id);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] := howdah.left_segments(messages_between.queue_id);
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
    current_generation CONSTANT integer := howdah.generation_of(delayed_count.queue_id);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] := howdah.left_segments(delayed_count.queue_id);
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
