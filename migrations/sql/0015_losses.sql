-- What a database has lost, and where each log ends: offsets are never given twice.

CREATE TABLE howdah.loss (
    id bigint GENERATED ALWAYS AS IDENTITY,
    noted_at timestamp with time zone DEFAULT now() NOT NULL,
    cause text NOT NULL,
    vhost text,
    queue text,
    queue_id bigint,
    first_offset bigint,
    end_offset bigint,
    detail text NOT NULL,
    CONSTRAINT loss_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE howdah.loss IS
    'What was confirmed and is not in the tables any more: after a failover to a standby that was '
    'behind, a restore, or a partition that somebody dropped. Its offsets are not given again.';
COMMENT ON COLUMN howdah.loss.id IS 'Row number.';
COMMENT ON COLUMN howdah.loss.noted_at IS 'When it was noticed.';
COMMENT ON COLUMN howdah.loss.cause IS
    'setback: the database went back in time; torn: a table was taken away; repair: found by repair().';
COMMENT ON COLUMN howdah.loss.vhost IS 'Virtual host; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.queue IS 'Name of the queue; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.queue_id IS 'Queue; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.first_offset IS 'First offset that has no message; null: no offsets.';
COMMENT ON COLUMN howdah.loss.end_offset IS 'First offset behind it that may have one again.';
COMMENT ON COLUMN howdah.loss.detail IS 'What was lost, for people.';

CREATE TABLE howdah.log_end (
    queue_id bigint NOT NULL,
    noted bigint NOT NULL,
    reserved bigint NOT NULL,
    noted_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT log_end_pkey PRIMARY KEY (queue_id)
);
COMMENT ON TABLE howdah.log_end IS
    'How far the offsets of each queue had come, beside the partitions that hold its messages: it '
    'survives them.';
COMMENT ON COLUMN howdah.log_end.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.log_end.noted IS 'Offsets below were given to messages, for certain.';
COMMENT ON COLUMN howdah.log_end.reserved IS 'Offsets from here on were given to none.';
COMMENT ON COLUMN howdah.log_end.noted_at IS 'When it was written.';

CREATE FUNCTION howdah.torn_tables() RETURNS TABLE (
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
        CROSS JOIN (VALUES ('settlement'), ('redelivery'), ('deduplication'), ('packet')) AS t (parent)
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

CREATE FUNCTION howdah.find_gaps() RETURNS TABLE (
    vhost text, queue text, queue_id bigint, kind text, first_offset bigint, end_offset bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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

CREATE FUNCTION howdah.mend_table(p_parent text, p_number integer, p_stands_in text) RETURNS void
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

CREATE FUNCTION howdah.repair() RETURNS SETOF howdah.loss
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

REVOKE ALL ON FUNCTION
    howdah.torn_tables(), howdah.find_gaps(), howdah.repair(), howdah.mend_table(text, integer, text)
    FROM PUBLIC;
GRANT SELECT, INSERT ON howdah.loss TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON howdah.log_end TO howdah_gateway;
GRANT SELECT ON howdah.loss, howdah.log_end TO howdah_reader, howdah_operator;
GRANT EXECUTE ON FUNCTION howdah.torn_tables() TO howdah_gateway, howdah_operator, howdah_reader;
GRANT EXECUTE ON FUNCTION howdah.find_gaps() TO howdah_operator, howdah_reader;
GRANT EXECUTE ON FUNCTION howdah.repair() TO howdah_operator;
