-- What a database has lost: partitions that are gone, offsets without a message, and how to go on
-- without them.

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
        FROM (SELECT DISTINCT s.generation FROM howdah.shard s) g
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

CREATE OR REPLACE FUNCTION howdah.find_gaps() RETURNS TABLE (
    vhost text, queue text, queue_id bigint, kind text, first_offset bigint, end_offset bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
DECLARE
    each record;
    known int8multirange;
    held int8multirange;
    settled int8multirange;
    start bigint;
    tail bigint;
    gap int8range;
BEGIN
    FOR each IN
        SELECT q.id, q.vhost AS place, q.name, q.kind AS sort, e.noted, e.reserved
        FROM howdah.queue q LEFT JOIN howdah.log_end e ON e.queue_id = q.id
        ORDER BY q.vhost, q.name
    LOOP
        SELECT coalesce(range_agg(int8range(l.first_offset, l.end_offset)), '{}') INTO known
        FROM howdah.loss l WHERE l.queue_id = each.id AND l.first_offset < l.end_offset;
        settled := '{}';
        start := NULL;
        IF each.sort = 'classic' THEN
            SELECT s.acked + int8multirange(int8range(0, s.floor)), s.floor INTO settled, start
            FROM howdah.settlement_state s WHERE s.queue_id = each.id;
        END IF;
        -- Runs of offsets: what is numbered without a hole has one difference.
        SELECT coalesce(range_agg(int8range(r.low, r.high + 1)), '{}') INTO held
        FROM (
            SELECT min(n.o) AS low, max(n.o) AS high
            FROM (
                SELECT m."offset" AS o, m."offset" - dense_rank() OVER (ORDER BY m."offset") AS island
                FROM howdah.message m WHERE m.queue_id = each.id
            ) n GROUP BY n.island
        ) r;
        start := coalesce(start, lower(held), 0);
        tail := greatest(upper(held), upper(settled), upper(known), start);
        IF tail < each.noted THEN
            tail := each.reserved;
        END IF;
        FOR gap IN
            SELECT g.span
            FROM unnest(int8multirange(int8range(start, tail)) - held - settled - known) AS g (span)
        LOOP
            vhost := each.place;
            queue := each.name;
            queue_id := each.id;
            kind := each.sort;
            first_offset := lower(gap);
            end_offset := upper(gap);
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.find_gaps() IS
    'Offsets that count as messages and have none, and that howdah.loss does not know of: phantoms of '
    'classic queues, holes in streams. Reads the index of every message.';

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
        PERFORM howdah.attach_generation(p_number);
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.mend_table(text, integer, text) IS
    'Puts one partition of torn_tables() right: by its name, its place, or without what was in it. '
    'Internal.';

CREATE OR REPLACE FUNCTION howdah.repair() RETURNS SETOF howdah.loss
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    torn record;
BEGIN
    -- The lock of the gateway that owns the database: it has all this in memory.
    IF NOT pg_try_advisory_xact_lock(114827953725800) THEN
        RAISE EXCEPTION 'a gateway owns this database: %',
            (SELECT format('%s, since %s', g.node, g.started_at) FROM howdah.gateway g)
            USING ERRCODE = 'object_in_use', HINT = 'Stop it, repair, and start it again.';
    END IF;
    -- The journal's row of a generation is made once for all four tables; message before message_body.
    FOR torn IN SELECT * FROM howdah.torn_tables() LOOP
        IF EXISTS (SELECT FROM howdah.torn_tables() t WHERE t.missing = torn.missing) THEN
            PERFORM howdah.mend_table(torn.parent, torn.number, torn.stands_in);
        END IF;
    END LOOP;
    RETURN QUERY
    INSERT INTO howdah.loss (cause, vhost, queue, queue_id, first_offset, end_offset, detail)
    SELECT 'repair', f.vhost, f.queue, f.queue_id, f.first_offset, f.end_offset,
           format('up to %s messages have no row', f.end_offset - f.first_offset)
    FROM howdah.find_gaps() f
    RETURNING *;
END
$function$;
COMMENT ON FUNCTION howdah.repair() IS
    'Puts partitions right that torn_tables() names, and notes in howdah.loss what find_gaps() finds, so '
    'that it counts as messages no more. With the gateway stopped; returns what it noted.';
