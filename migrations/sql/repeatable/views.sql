-- Views for people: they need no gateway, and work on a standby as well.
-- Nothing here counts rows: offsets have no gaps, so what is unsettled is a subtraction. What needs
-- another look-up for each row is a function of its own column, so that it costs only those who ask.

CREATE OR REPLACE VIEW howdah.settlement_state AS
SELECT
    q.id AS queue_id,
    q.vhost,
    q.name AS queue,
    q.kind,
    g.group_name,
    coalesce(s.floor, howdah.oldest_offset(q.id, (TABLE howdah.view_key)), 0) AS floor,
    coalesce(s.acked - int8multirange(int8range(NULL, s.floor)), '{}') AS acked,
    s.written_at
FROM howdah.queue q
CROSS JOIN LATERAL (
    SELECT '' AS group_name WHERE q.kind = 'classic'
    UNION ALL
    SELECT n.group_name FROM howdah.group_names(q.id, (TABLE howdah.view_key)) AS n(group_name)
    WHERE q.kind = 'stream'
) g
CROSS JOIN LATERAL howdah.settled(q.id, g.group_name, (TABLE howdah.view_key)) s;
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
        FROM unnest(e.done - int8multirange(int8range(NULL, t.start))) AS r(span)
    ), 0)::bigint AS lag,
    now() - howdah.enqueued_at(
        s.queue_id, lower(int8multirange(int8range(t.start, NULL)) - e.done),
        (TABLE howdah.view_key)
    ) AS oldest_unsettled_age,
    s.queue_id
FROM howdah.settlement_state s
CROSS JOIN LATERAL (
    SELECT
        CASE s.kind
            WHEN 'stream' THEN howdah.oldest_offset(s.queue_id, (TABLE howdah.view_key))
        END AS oldest,
        howdah.newest_offset(s.queue_id, (TABLE howdah.view_key)) AS newest,
        s.acked + coalesce((
            SELECT range_agg(int8range(l.first_offset, l.end_offset)) FROM howdah.loss l
            WHERE l.queue_id = s.queue_id AND l.first_offset < l.end_offset
        ), '{}') AS done
    OFFSET 0  -- looked up once, however often it is used below
) e
CROSS JOIN LATERAL (
    SELECT
        -- What a stream has lost to retention nobody can catch up with.
        greatest(s.floor, e.oldest) AS start,
        -- The newest messages may be settled and dropped, before older ones that nobody settles.
        greatest(e.newest + 1, s.floor, upper(e.done)) AS tail
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
           howdah.newest_offset(q.id, (TABLE howdah.view_key)) AS newest,
           (
               SELECT range_agg(int8range(l.first_offset, l.end_offset)) FROM howdah.loss l
               WHERE l.queue_id = q.id AND l.first_offset < l.end_offset
           ) AS lost
    OFFSET 0  -- looked up once, however often it is used below
) e
CROSS JOIN LATERAL (
    SELECT
        coalesce(greatest(e.newest + 1, c.tail, upper(e.lost)), 0) AS tail,
        -- Nothing is ever settled away from a stream.
        CASE q.kind
            WHEN 'classic' THEN c.lag
            ELSE coalesce(e.newest + 1 - e.head - coalesce((
                SELECT sum(upper(r.span) - lower(r.span))
                FROM unnest(e.lost * int8multirange(int8range(e.head, e.newest + 1))) AS r(span)
            ), 0)::bigint, 0)
        END AS unsettled,
        CASE q.kind WHEN 'classic' THEN c.floor ELSE e.head END AS first_unsettled
) u
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN u.unsettled > 0 THEN howdah.delayed_count(q.id, (TABLE howdah.view_key)) ELSE 0
    END AS delayed
    OFFSET 0
) d;
COMMENT ON VIEW howdah.queue_status IS
    'How every durable queue stands. All but in_flight and consumers is as of this moment.';
COMMENT ON COLUMN howdah.queue_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.queue_status.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.queue_status.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.queue_status.ready IS
    'Unsettled, due and not with a consumer; for a stream, all that it keeps and that is due.';
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
COMMENT ON COLUMN howdah.queue_status.delayed IS
    'Not due yet: not delivered before its time; see not_before in ready_messages.';

CREATE OR REPLACE VIEW howdah.ready_messages AS
SELECT
    q.vhost,
    q.name AS queue,
    m."offset",
    CASE
        WHEN m.expires_at <= now() THEN 'expired'
        WHEN m.not_before > now() THEN 'delayed'
        ELSE 'ready'
    END AS state,
    m.enqueued_at,
    m.not_before,
    m.expires_at,
    m.delivery_count,
    m.failed_because,
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
    q.id AS queue_id,
    m.segment_id,
    octet_length(m.body) AS body_bytes,
    m.body
FROM howdah.queue q
CROSS JOIN LATERAL howdah.unsettled_chunks(q.id, (TABLE howdah.view_key)) c
CROSS JOIN LATERAL howdah.messages_between(
    q.id, c.first, c.past, (TABLE howdah.view_key)
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

CREATE OR REPLACE VIEW howdah.dead_letters AS
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

CREATE OR REPLACE VIEW howdah.outbox_status AS
SELECT
    o.vhost,
    w.queue,
    count(*) AS messages,
    now() - min(o.inserted_at) AS oldest_age
FROM howdah.outbox o
LEFT JOIN LATERAL unnest(o.waiting_for) AS w (queue) ON true
GROUP BY o.vhost, w.queue;
COMMENT ON VIEW howdah.outbox_status IS
    'Messages that SQL published and that have not entered every queue yet.';
COMMENT ON COLUMN howdah.outbox_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.outbox_status.queue IS
    'Full queue that they wait for; null: the gateway has not looked at them yet.';
COMMENT ON COLUMN howdah.outbox_status.messages IS 'How many.';
COMMENT ON COLUMN howdah.outbox_status.oldest_age IS 'How long the oldest has been there.';

CREATE OR REPLACE VIEW howdah.commands AS
SELECT
    c.id,
    c.kind,
    c.vhost,
    c.queue,
    c.argument - 'queue_id' AS argument,
    CASE WHEN c.done_at IS NULL THEN 'waiting' WHEN c.error IS NULL THEN 'done' ELSE 'failed' END
        AS state,
    c.requested_by,
    c.requested_at,
    c.done_at,
    c.result,
    c.error
FROM howdah.command c;
COMMENT ON VIEW howdah.commands IS
    'What people asked the gateway for in SQL or by its commands, who and when, and what came of it; '
    'for a week.';
COMMENT ON COLUMN howdah.commands.id IS 'Number of the command, for command_status().';
COMMENT ON COLUMN howdah.commands.kind IS 'What was asked for, such as purge or redrive.';
COMMENT ON COLUMN howdah.commands.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.commands.queue IS 'Queue that it is about.';
COMMENT ON COLUMN howdah.commands.argument IS 'Details of what was asked for.';
COMMENT ON COLUMN howdah.commands.state IS 'waiting, done or failed.';
COMMENT ON COLUMN howdah.commands.requested_by IS 'Login that asked.';
COMMENT ON COLUMN howdah.commands.requested_at IS 'When it was asked for.';
COMMENT ON COLUMN howdah.commands.done_at IS 'When the gateway did it; null: not yet.';
COMMENT ON COLUMN howdah.commands.result IS 'What came of it, such as how many messages.';
COMMENT ON COLUMN howdah.commands.error IS 'Why it failed; null: it did not.';
