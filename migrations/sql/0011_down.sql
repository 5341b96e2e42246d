-- Back to 0010: views that look up everything themselves.

CREATE OR REPLACE VIEW howdah.settlement_state AS
SELECT
    q.id AS queue_id,
    q.vhost,
    q.name AS queue,
    q.kind,
    g.group_name,
    coalesce(s.floor, (
        SELECT m."offset" FROM howdah.message m WHERE m.queue_id = q.id ORDER BY m."offset" LIMIT 1
    ), 0) AS floor,
    coalesce(s.acked - int8multirange(int8range(NULL, s.floor)), '{}') AS acked,
    s.written_at
FROM howdah.queue q
CROSS JOIN LATERAL (
    SELECT '' AS group_name WHERE q.kind = 'classic'
    UNION ALL
    -- From one group to the next by index, however many rows each has.
    SELECT n.group_name
    FROM (
        WITH RECURSIVE names AS (
            SELECT min(j.group_name) AS group_name
            FROM howdah.settlement j
            WHERE q.kind = 'stream' AND j.queue_id = q.id
              AND j.generation = (SELECT generation FROM howdah.gateway)
            UNION ALL
            SELECT (
                SELECT min(j.group_name)
                FROM howdah.settlement j
                WHERE j.queue_id = q.id AND j.group_name > names.group_name
                  AND j.generation = (SELECT generation FROM howdah.gateway)
            )
            FROM names WHERE names.group_name IS NOT NULL
        )
        SELECT names.group_name FROM names WHERE names.group_name IS NOT NULL
    ) n
) g
CROSS JOIN LATERAL (
    SELECT max(j.floor) AS floor, range_agg(r.span) AS acked, max(j.written_at) AS written_at
    FROM howdah.settlement j
    LEFT JOIN LATERAL unnest(j.acked) AS r(span) ON true
    WHERE j.queue_id = q.id AND j.group_name = g.group_name
      AND j.generation = (SELECT generation FROM howdah.gateway)
      AND j.seq >= coalesce((
          SELECT f.seq
          FROM howdah.settlement f
          WHERE f.queue_id = q.id AND f.group_name = g.group_name AND f.is_full
            AND f.generation = (SELECT generation FROM howdah.gateway)
          ORDER BY f.seq DESC LIMIT 1
      ), 0)
) s;

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
    (
        SELECT now() - m.enqueued_at
        FROM howdah.message m
        WHERE m.queue_id = s.queue_id
          AND m."offset" >= lower(int8multirange(int8range(t.start, NULL)) - s.acked)
        ORDER BY m."offset" LIMIT 1
    ) AS oldest_unsettled_age,
    s.queue_id
FROM howdah.settlement_state s
CROSS JOIN LATERAL (
    SELECT
        (SELECT m."offset" FROM howdah.message m
         WHERE s.kind = 'stream' AND m.queue_id = s.queue_id ORDER BY m."offset" LIMIT 1) AS oldest,
        (SELECT m."offset" FROM howdah.message m
         WHERE m.queue_id = s.queue_id ORDER BY m."offset" DESC LIMIT 1) AS newest
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
    CASE q.kind
        WHEN 'classic' THEN greatest(u.unsettled - coalesce(a.in_flight, 0), 0)
        ELSE u.unsettled
    END AS ready,
    coalesce(a.in_flight, 0) AS in_flight,
    u.unsettled,
    c.lag,
    CASE q.kind WHEN 'classic' THEN c.oldest_unsettled_age ELSE (
        SELECT now() - m.enqueued_at
        FROM howdah.message m WHERE m.queue_id = q.id ORDER BY m."offset" LIMIT 1
    ) END AS oldest_age,
    (u.unsettled * coalesce((
        SELECT avg(100 + p.bytes)
        FROM (
            SELECT coalesce(pg_column_size(m.headers), 0) + coalesce(octet_length(m.native), 0)
                   + coalesce(octet_length(m.body), (
                       SELECT octet_length(b.body) FROM howdah.message_body b
                       WHERE b.id = m.body_id AND b.segment_id = m.segment_id
                   ), 0) AS bytes
            FROM howdah.message m
            WHERE m.queue_id = q.id AND m."offset" >= u.first_unsettled
            ORDER BY m."offset" LIMIT 16
        ) p
    ), 0))::bigint AS size_bytes,
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
    SELECT
        (SELECT m."offset" FROM howdah.message m
         WHERE m.queue_id = q.id ORDER BY m."offset" LIMIT 1) AS head,
        (SELECT m."offset" FROM howdah.message m
         WHERE m.queue_id = q.id ORDER BY m."offset" DESC LIMIT 1) AS newest
) e
CROSS JOIN LATERAL (
    SELECT
        coalesce(greatest(e.newest + 1, c.tail), 0) AS tail,
        -- Nothing is ever settled away from a stream.
        CASE q.kind WHEN 'classic' THEN c.lag ELSE coalesce(e.newest - e.head + 1, 0) END
            AS unsettled,
        CASE q.kind WHEN 'classic' THEN c.floor ELSE e.head END AS first_unsettled
) u;

CREATE OR REPLACE VIEW howdah.ready_messages AS
SELECT
    q.vhost,
    q.name AS queue,
    m."offset",
    CASE
        WHEN m.expires_at <= now() THEN 'expired'
        WHEN coalesce((
            SELECT f.not_before FROM howdah.redelivery f
            WHERE f.queue_id = m.queue_id AND f."offset" = m."offset"
              AND f.generation = (SELECT generation FROM howdah.gateway)
            ORDER BY f.count DESC LIMIT 1
        ), m.not_before) > now() THEN 'delayed'
        ELSE 'ready'
    END AS state,
    m.enqueued_at,
    coalesce((
        SELECT f.not_before FROM howdah.redelivery f
        WHERE f.queue_id = m.queue_id AND f."offset" = m."offset"
          AND f.generation = (SELECT generation FROM howdah.gateway)
        ORDER BY f.count DESC LIMIT 1
    ), m.not_before) AS not_before,
    m.expires_at,
    coalesce((
        SELECT f.count FROM howdah.redelivery f
        WHERE f.queue_id = m.queue_id AND f."offset" = m."offset"
          AND f.generation = (SELECT generation FROM howdah.gateway)
        ORDER BY f.count DESC LIMIT 1
    ), 0) AS delivery_count,
    (
        SELECT f.reason FROM howdah.redelivery f
        WHERE f.queue_id = m.queue_id AND f."offset" = m."offset"
          AND f.generation = (SELECT generation FROM howdah.gateway)
        ORDER BY f.count DESC LIMIT 1
    ) AS failed_because,
    m.priority,
    m.durable,
    m.exchange,
    m.routing_key,
    CASE m.exchange WHEN 'amq.topic' THEN howdah.slashed(m.routing_key) END AS topic,
    m.content_type,
    m.content_encoding,
    m.message_id,
    m.correlation_id,
    m.reply_to,
    m.subject,
    m.app_id,
    m.user_id,
    m.group_id,
    m.created_at,
    m.headers,
    m.publisher,
    howdah.protocol_name(m.form) AS protocol,
    m.deaths,
    m.queue_id,
    m.segment_id,
    octet_length(CASE WHEN m.body_id IS NULL THEN m.body ELSE (
        SELECT b.body FROM howdah.message_body b
        WHERE b.id = m.body_id AND b.segment_id = m.segment_id
    ) END) AS body_bytes,
    CASE WHEN m.body_id IS NULL THEN m.body ELSE (
        SELECT b.body FROM howdah.message_body b
        WHERE b.id = m.body_id AND b.segment_id = m.segment_id
    ) END AS body
FROM howdah.queue q
CROSS JOIN LATERAL (
    -- Between what is settled: each span is one range of the primary key.
    SELECT unnest(int8multirange(int8range(c.floor, NULL)) - c.acked) AS span
    FROM (
        SELECT s.floor, s.acked FROM howdah.settlement_state s
        WHERE q.kind = 'classic' AND s.queue_id = q.id LIMIT 1  -- the planner must not expect more
    ) c
    UNION ALL
    SELECT int8range(0, NULL) WHERE q.kind = 'stream'
) r
CROSS JOIN LATERAL (
    SELECT n.*
    FROM howdah.message n
    WHERE n.queue_id = q.id AND n."offset" >= lower(r.span)
      AND n."offset" < coalesce(upper(r.span), 9223372036854775807)
      -- A message that outlives its segment is copied into a newer one before the old one goes.
      AND n.segment_id <> ALL (
          ARRAY(SELECT g.id FROM howdah.segment g WHERE g.retired_at IS NOT NULL))
    OFFSET 0  -- keeps the planner from reading the whole queue once for each span
) m;

ALTER FUNCTION howdah.peek(text, integer, bigint, text) RESET jit;
ALTER FUNCTION howdah.redrive(text, text, text) RESET jit;
ALTER FUNCTION howdah.reset_group(text, text, text, text) RESET jit;

DROP FUNCTION
    howdah.oldest_offset(bigint),
    howdah.newest_offset(bigint),
    howdah.enqueued_at(bigint, bigint),
    howdah.average_bytes(bigint, bigint),
    howdah.group_names(bigint),
    howdah.settled(bigint, text),
    howdah.unsettled_chunks(bigint),
    howdah.messages_between(bigint, bigint, bigint);
