-- Back to 0016: what is delayed counts as ready.

DROP VIEW howdah.queue_status;
DROP FUNCTION howdah.delayed_count(bigint);
DROP INDEX howdah.redelivery_delayed_idx;
DROP INDEX howdah.message_delayed_idx;

CREATE VIEW howdah.queue_status AS
SELECT
    q.vhost,
    q.name AS queue,
    q.kind,
    CASE q.kind
        WHEN 'classic' THEN greatest(u.unsettled - coalesce(a.in_flight, 0), 0)
        ELSE u.unsettled
    END AS ready,
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
    q.id AS queue_id
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
) u;

COMMENT ON VIEW howdah.queue_status IS
    'How every durable queue stands. All but in_flight and consumers is as of this moment.';
COMMENT ON COLUMN howdah.queue_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.queue_status.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.queue_status.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.queue_status.ready IS
    'Unsettled and not with a consumer; for a stream, all that it keeps.';
COMMENT ON COLUMN howdah.queue_status.in_flight IS 'Delivered and not settled, at noted_at.';
COMMENT ON COLUMN howdah.queue_status.unsettled IS
    'Messages that are not settled; for a stream, all that it keeps.';
COMMENT ON COLUMN howdah.queue_status.lag IS
    'Messages that the consumers have not settled; for a stream, of the group furthest behind.';
COMMENT ON COLUMN howdah.queue_status.oldest_age IS
    'How long the oldest message has been there; null: none is.';
COMMENT ON COLUMN howdah.queue_status.size_bytes IS
    'About how large the unsettled messages are, judged by the oldest 16.';
COMMENT ON COLUMN howdah.queue_status.consumers IS 'Consumers, at noted_at.';
COMMENT ON COLUMN howdah.queue_status.head IS 'Oldest offset that is stored, settled or not.';
COMMENT ON COLUMN howdah.queue_status.tail IS 'Offset that the next message will have.';
COMMENT ON COLUMN howdah.queue_status.floor IS
    'All offsets below are settled; for a stream, by every group.';
COMMENT ON COLUMN howdah.queue_status.noted_at IS
    'When the gateway noted in_flight and consumers; null: never.';
COMMENT ON COLUMN howdah.queue_status.queue_id IS 'Queue.';
GRANT SELECT ON howdah.queue_status TO howdah_operator, howdah_reader;
