-- Back to 0019: commits leave no marks, and what was lost counts in the views.

CREATE OR REPLACE VIEW howdah.consumer_lag AS
SELECT
    s.vhost,
    s.queue,
    s.kind,
    s.group_name,
    s.floor,
    t.tail,
    t.tail - t.start - coalesce((
        SELECT sum(upper(r.span) - lower(r.span))
        FROM unnest(s.acked - int8multirange(int8range(NULL, t.start))) AS r(span)
    ), 0)::bigint AS lag,
    now() - howdah.enqueued_at(
        s.queue_id, lower(int8multirange(int8range(t.start, NULL)) - s.acked),
        (TABLE howdah.view_key)
    ) AS oldest_unsettled_age,
    s.queue_id
FROM howdah.settlement_state s
CROSS JOIN LATERAL (
    SELECT
        CASE s.kind
            WHEN 'stream' THEN howdah.oldest_offset(s.queue_id, (TABLE howdah.view_key))
        END AS oldest,
        howdah.newest_offset(s.queue_id, (TABLE howdah.view_key)) AS newest
    OFFSET 0  -- looked up once, however often it is used below
) e
CROSS JOIN LATERAL (
    SELECT
        -- What a stream has lost to retention nobody can catch up with.
        greatest(s.floor, e.oldest) AS start,
        -- The newest messages may be settled and dropped, before older ones that nobody settles.
        greatest(e.newest + 1, s.floor, upper(s.acked)) AS tail
) t;

CREATE OR REPLACE VIEW howdah.queue_status AS
SELECT
    q.vhost,
    q.name AS queue,
    q.kind,
    greatest(
        u.unsettled - d.delayed - CASE q.kind WHEN 'classic' THEN coalesce(a.in_flight, 0) ELSE 0 END,
        0
    ) AS ready,
    coalesce(a.in_flight, 0) AS in_flight,
    u.unsettled,
    c.lag,
    CASE q.kind
        WHEN 'classic' THEN c.oldest_unsettled_age
        ELSE now() - howdah.enqueued_at(q.id, e.head, (TABLE howdah.view_key))
    END AS oldest_age,
    (u.unsettled * coalesce(
        howdah.average_bytes(q.id, u.first_unsettled, (TABLE howdah.view_key)), 0
    ))::bigint AS size_bytes,
    coalesce(a.consumers, 0) AS consumers,
    e.head,
    u.tail,
    c.floor,
    a.noted_at,
    q.id AS queue_id,
    d.delayed
FROM howdah.queue q
LEFT JOIN howdah.queue_activity a ON a.queue_id = q.id
CROSS JOIN LATERAL (
    -- One row for a classic queue; for a stream, the group that is furthest behind.
    SELECT max(l.lag) AS lag, min(l.floor) AS floor, max(l.tail) AS tail,
           max(l.oldest_unsettled_age) AS oldest_unsettled_age
    FROM howdah.consumer_lag l WHERE l.queue_id = q.id
) c
CROSS JOIN LATERAL (
    SELECT howdah.oldest_offset(q.id, (TABLE howdah.view_key)) AS head,
           howdah.newest_offset(q.id, (TABLE howdah.view_key)) AS newest
    OFFSET 0  -- looked up once, however often it is used below
) e
CROSS JOIN LATERAL (
    SELECT
        coalesce(greatest(e.newest + 1, c.tail), 0) AS tail,
        -- Nothing is ever settled away from a stream.
        CASE q.kind WHEN 'classic' THEN c.lag ELSE coalesce(e.newest - e.head + 1, 0) END
            AS unsettled,
        CASE q.kind WHEN 'classic' THEN c.floor ELSE e.head END AS first_unsettled
) u
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN u.unsettled > 0 THEN howdah.delayed_count(q.id, (TABLE howdah.view_key)) ELSE 0
    END AS delayed
    OFFSET 0
) d;

DROP INDEX howdah.loss_queue_idx;
COMMENT ON COLUMN howdah.loss.cause IS
    'setback: the database went back in time; torn: a table was taken away; repair: found by repair().';
COMMENT ON COLUMN howdah.loss.detail IS 'What was lost, for people.';

DROP FUNCTION howdah.hold(bigint, timestamptz, integer, bigint, bigint);
CREATE FUNCTION howdah.hold(p_epoch bigint, p_started_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
    -- First the lock, then the look, which sees all that was committed before the lock was free: whoever
    -- takes the database holds this lock alone while it writes its name into howdah.gateway.
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(114827953725801);
    PERFORM FROM howdah.gateway g
    WHERE g.id = 1 AND g.epoch = p_epoch AND g.started_at = p_started_at;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another gateway has taken over this database'
            USING ERRCODE = 'HW001', HINT = 'See howdah.gateway for which one it is.';
    END IF;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION howdah.hold(bigint, timestamptz) IS
    'True, and stays so until this transaction ends, for the gateway that owns this database, by its '
    'epoch and start; an error (HW001) for every other. For the gateway.';

REVOKE ALL ON FUNCTION howdah.hold(bigint, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION howdah.hold(bigint, timestamptz) TO howdah_gateway;

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
        CROSS JOIN (VALUES ('settlement'), ('redelivery'), ('deduplication'), ('packet')) AS t (parent)
    ) w
    LEFT JOIN (pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid)
        ON i.inhparent = to_regclass(format('howdah.%I', w.parent))
       AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%s)', w.number)
    WHERE c.relname IS DISTINCT FROM format('%s_%s', w.parent, w.number)
    ORDER BY w.parent, w.number
$function$;

CREATE OR REPLACE FUNCTION howdah.open_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    journal name;
BEGIN
    FOREACH journal IN ARRAY ARRAY['settlement', 'redelivery', 'deduplication', 'packet'] LOOP
        -- A gateway that was stopped half way does it again.
        IF to_regclass(format('howdah.%I', format('%s_%s', journal, p_generation))) IS NULL THEN
            PERFORM howdah.attach_leaf(journal, 'generation', p_generation);
        END IF;
    END LOOP;
END
$function$;

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
END
$function$;

DROP TABLE howdah.commit_mark;
DROP TABLE howdah.ownership;
ALTER TABLE howdah.gateway DROP COLUMN lineage;
