-- Delayed messages are told apart from those that are ready.

-- Few messages have a time before which they are not delivered; only those are in these indexes.
CREATE INDEX message_delayed_idx ON howdah.message (queue_id, not_before)
    WHERE not_before IS NOT NULL;
CREATE INDEX redelivery_delayed_idx ON howdah.redelivery (queue_id, not_before)
    WHERE not_before IS NOT NULL;

CREATE FUNCTION howdah.delayed_count(queue_id bigint) RETURNS bigint
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
    FROM howdah.queue q CROSS JOIN LATERAL howdah.settled(q.id, '') s
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
COMMENT ON FUNCTION howdah.delayed_count(bigint) IS
    'How many messages of a queue are not due yet: by their publisher''s wish, after a failed '
    'delivery, or because a consumer put them off. Internal: for the views.';
REVOKE ALL ON FUNCTION howdah.delayed_count(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION howdah.delayed_count(bigint) TO howdah_operator, howdah_reader;

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
        ELSE now() - howdah.enqueued_at(q.id, e.head)
    END AS oldest_age,
    (u.unsettled * coalesce(howdah.average_bytes(q.id, u.first_unsettled), 0))::bigint
        AS size_bytes,
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
    SELECT howdah.oldest_offset(q.id) AS head, howdah.newest_offset(q.id) AS newest
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
    SELECT CASE WHEN u.unsettled > 0 THEN howdah.delayed_count(q.id) ELSE 0 END AS delayed
    OFFSET 0
) d;
COMMENT ON COLUMN howdah.queue_status.ready IS
    'Unsettled, due and not with a consumer; for a stream, all that it keeps and that is due.';
COMMENT ON COLUMN howdah.queue_status.delayed IS
    'Not due yet: not delivered before its time; see not_before in ready_messages.';
