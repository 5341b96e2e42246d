-- Views for people: they need no gateway, and work on a standby as well.
-- Nothing here counts rows: offsets have no gaps, so what is unsettled is a subtraction. What needs
-- another look-up for each row is a subquery of its own column, so that it costs only those who ask.

CREATE FUNCTION howdah.protocol_name(form smallint) RETURNS text
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
CREATE FUNCTION howdah.slashed(routing_key text) RETURNS text
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

CREATE FUNCTION howdah.dotted(topic text) RETURNS text
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

CREATE FUNCTION howdah.body_text(body bytea) RETURNS text
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

CREATE VIEW howdah.settlement_state AS
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
COMMENT ON VIEW howdah.settlement_state IS
    'What each group has settled, worked out from the journal: all below floor, and acked above it.';
COMMENT ON COLUMN howdah.settlement_state.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.settlement_state.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.settlement_state.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.settlement_state.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.settlement_state.group_name IS 'Consumer group; empty for a classic queue.';
COMMENT ON COLUMN howdah.settlement_state.floor IS 'All offsets below are settled.';
COMMENT ON COLUMN howdah.settlement_state.acked IS 'Offsets settled above the floor.';
COMMENT ON COLUMN howdah.settlement_state.written_at IS 'When it last changed; null: never.';

CREATE VIEW howdah.consumer_lag AS
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
COMMENT ON VIEW howdah.consumer_lag IS
    'How far each consumer group is behind: one row per group of a stream, one per classic queue.';
COMMENT ON COLUMN howdah.consumer_lag.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.consumer_lag.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.consumer_lag.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.consumer_lag.group_name IS 'Consumer group; empty for a classic queue.';
COMMENT ON COLUMN howdah.consumer_lag.floor IS 'All offsets below are settled.';
COMMENT ON COLUMN howdah.consumer_lag.tail IS 'Offset that the next message will have.';
COMMENT ON COLUMN howdah.consumer_lag.lag IS 'Messages that the group has not settled.';
COMMENT ON COLUMN howdah.consumer_lag.oldest_unsettled_age IS
    'How long the oldest of them has been there; null: none is.';
COMMENT ON COLUMN howdah.consumer_lag.queue_id IS 'Queue.';

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

CREATE VIEW howdah.ready_messages AS
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
COMMENT ON VIEW howdah.ready_messages IS
    'Messages that are in a queue and not settled, also those that a consumer has in flight; of a '
    'stream, all that it keeps. Always ask for one queue: WHERE queue = ...';
COMMENT ON COLUMN howdah.ready_messages.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.ready_messages.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.ready_messages."offset" IS 'Place in the queue.';
COMMENT ON COLUMN howdah.ready_messages.state IS 'ready, delayed or expired.';
COMMENT ON COLUMN howdah.ready_messages.enqueued_at IS 'When it entered this queue.';
COMMENT ON COLUMN howdah.ready_messages.not_before IS
    'Not delivered before, by the publisher''s wish or after a failure; null: at once.';
COMMENT ON COLUMN howdah.ready_messages.expires_at IS 'When it is worth nothing; null: never.';
COMMENT ON COLUMN howdah.ready_messages.delivery_count IS 'How many deliveries failed.';
COMMENT ON COLUMN howdah.ready_messages.failed_because IS 'Why the last one failed.';
COMMENT ON COLUMN howdah.ready_messages.priority IS '0 to 255; null: none given.';
COMMENT ON COLUMN howdah.ready_messages.durable IS 'Publisher asked for it to survive a restart.';
COMMENT ON COLUMN howdah.ready_messages.exchange IS 'Exchange published to.';
COMMENT ON COLUMN howdah.ready_messages.routing_key IS 'Routing key, in dot form.';
COMMENT ON COLUMN howdah.ready_messages.topic IS
    'MQTT topic, in slash form; null: not published to amq.topic.';
COMMENT ON COLUMN howdah.ready_messages.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.ready_messages.content_encoding IS 'Encoding of the body.';
COMMENT ON COLUMN howdah.ready_messages.message_id IS 'Identifier given by the publisher.';
COMMENT ON COLUMN howdah.ready_messages.correlation_id IS 'What it answers or belongs to.';
COMMENT ON COLUMN howdah.ready_messages.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.ready_messages.subject IS 'Subject or type.';
COMMENT ON COLUMN howdah.ready_messages.app_id IS 'Application that published, by its own word.';
COMMENT ON COLUMN howdah.ready_messages.user_id IS 'User that published, checked.';
COMMENT ON COLUMN howdah.ready_messages.group_id IS 'Group that it belongs to.';
COMMENT ON COLUMN howdah.ready_messages.created_at IS 'When the publisher says it made it.';
COMMENT ON COLUMN howdah.ready_messages.headers IS 'Application headers.';
COMMENT ON COLUMN howdah.ready_messages.publisher IS 'Who published, stamped by the gateway.';
COMMENT ON COLUMN howdah.ready_messages.protocol IS 'Protocol that it was published with.';
COMMENT ON COLUMN howdah.ready_messages.deaths IS 'Where it was dead-lettered, newest first.';
COMMENT ON COLUMN howdah.ready_messages.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.ready_messages.segment_id IS 'Segment that it lies in.';
COMMENT ON COLUMN howdah.ready_messages.body_bytes IS 'Size of the body.';
COMMENT ON COLUMN howdah.ready_messages.body IS 'The payload; see body_text().';

CREATE VIEW howdah.dead_letters AS
SELECT
    r.vhost,
    r.queue,
    r."offset",
    r.deaths -> 0 ->> 'queue' AS died_in,
    r.deaths -> 0 ->> 'reason' AS reason,
    to_timestamp((r.deaths -> 0 ->> 'time')::double precision) AS died_at,
    (SELECT sum(coalesce((d.death ->> 'count')::bigint, 1))
     FROM jsonb_array_elements(r.deaths) AS d(death))::bigint AS deaths_in_all,
    r.deaths,
    r.enqueued_at,
    r.exchange,
    r.routing_key,
    r.topic,
    r.content_type,
    r.message_id,
    r.correlation_id,
    r.headers,
    r.publisher,
    r.protocol,
    r.queue_id,
    r.body_bytes,
    r.body
FROM howdah.ready_messages r
WHERE r.deaths IS NOT NULL;
COMMENT ON VIEW howdah.dead_letters IS
    'Messages that were dead-lettered and lie in a queue now; redrive() sends them back.';
COMMENT ON COLUMN howdah.dead_letters.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.dead_letters.queue IS 'Queue that it lies in now.';
COMMENT ON COLUMN howdah.dead_letters."offset" IS 'Place in that queue.';
COMMENT ON COLUMN howdah.dead_letters.died_in IS 'Queue that it last died in.';
COMMENT ON COLUMN howdah.dead_letters.reason IS 'rejected, expired, maxlen or delivery_limit.';
COMMENT ON COLUMN howdah.dead_letters.died_at IS 'When it first died there, for that reason.';
COMMENT ON COLUMN howdah.dead_letters.deaths_in_all IS 'How often it died, anywhere.';
COMMENT ON COLUMN howdah.dead_letters.deaths IS
    'All its deaths, newest first: queue, reason, count, time, exchange, routing_keys.';
COMMENT ON COLUMN howdah.dead_letters.enqueued_at IS 'When it entered the queue it lies in.';
COMMENT ON COLUMN howdah.dead_letters.exchange IS 'Exchange that it came through last.';
COMMENT ON COLUMN howdah.dead_letters.routing_key IS 'Routing key, in dot form.';
COMMENT ON COLUMN howdah.dead_letters.topic IS 'MQTT topic; null: not through amq.topic.';
COMMENT ON COLUMN howdah.dead_letters.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.dead_letters.message_id IS 'Identifier given by the publisher.';
COMMENT ON COLUMN howdah.dead_letters.correlation_id IS 'What it answers or belongs to.';
COMMENT ON COLUMN howdah.dead_letters.headers IS 'Application headers.';
COMMENT ON COLUMN howdah.dead_letters.publisher IS 'Who published, stamped by the gateway.';
COMMENT ON COLUMN howdah.dead_letters.protocol IS 'Protocol that it was published with.';
COMMENT ON COLUMN howdah.dead_letters.queue_id IS 'Queue that it lies in now.';
COMMENT ON COLUMN howdah.dead_letters.body_bytes IS 'Size of the body.';
COMMENT ON COLUMN howdah.dead_letters.body IS 'The payload; see body_text().';
