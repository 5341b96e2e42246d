-- Looking into queues without side effects: page by page, by offset, time or condition; dead letters by
-- their cause; what became of one message. Each call reads a bounded number of messages.

CREATE OR REPLACE FUNCTION howdah.body_json(body bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
AS $function$
BEGIN
    RETURN howdah.body_text(body)::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
        RETURN NULL;
END
$function$;
COMMENT ON FUNCTION howdah.body_json(bytea) IS 'A body as JSON; null if it is none.';

CREATE OR REPLACE FUNCTION howdah.failure_text(headers jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $function$
    SELECT left(split_part(coalesce(
        headers ->> 'x-exception-message',                -- Spring
        headers ->> 'NServiceBus.ExceptionInfo.Message',
        headers ->> 'MT-Fault-Message',                   -- MassTransit
        headers ->> 'rbs2-error-details',                 -- Rebus
        headers ->> 'x-exception',
        headers ->> 'exception'
    ), E'\n', 1), 200)
$function$;
COMMENT ON FUNCTION howdah.failure_text(jsonb) IS
    'What a consumer''s exception said, by the headers that common libraries write: the first line, '
    '200 characters at most; null: no such header.';

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
    current_generation integer;
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
    current_generation := howdah.generation_of(target.id);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    candidates := ARRAY(
        SELECT g.id FROM howdah.segment g
        WHERE g.id <> ALL (howdah.left_segments(target.id))
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
        WHERE g.id <> ALL (howdah.left_segments(target.id))
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

CREATE OR REPLACE FUNCTION howdah.dead_letter_causes(
    queue text, from_offset bigint DEFAULT NULL, scan integer DEFAULT 100000, vhost text DEFAULT '/'
) RETURNS TABLE (
    died_in text,
    reason text,
    failure text,
    messages bigint,
    bytes bigint,
    first_died_at timestamptz,
    last_died_at timestamptz,
    first_offset bigint,
    last_offset bigint
)
LANGUAGE sql STABLE
AS $function$
    SELECT b.died_in, b.reason, b.failure, count(*), sum(b.body_bytes), min(b.died_at),
           max(b.died_at), min(b."offset"), max(b."offset")
    FROM howdah.browse(queue, from_offset, scan, vhost => vhost) b
    WHERE b.deaths IS NOT NULL
    GROUP BY b.died_in, b.reason, b.failure
    ORDER BY count(*) DESC, b.died_in, b.reason, b.failure
$function$;
COMMENT ON FUNCTION howdah.dead_letter_causes(text, bigint, integer, text) IS
    'The dead letters that lie in a queue, grouped by the queue they died in, why, and what the '
    'consumer''s exception said. Looks at scan messages at most.';

CREATE OR REPLACE FUNCTION howdah.message_life(queue text, "offset" bigint, vhost text DEFAULT '/')
RETURNS TABLE (at timestamptz, event text, detail jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    target howdah.queue;
    current_generation integer;
    message howdah.message;
BEGIN
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = message_life.vhost AND q.name = message_life.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    current_generation := howdah.generation_of(target.id);
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

CREATE OR REPLACE FUNCTION howdah.topic_matches(topic text, filter text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $function$
    SELECT CASE
        -- A filter that begins with a wildcard leaves out topics that begin with $.
        WHEN left(topic, 1) = '$' AND left(filter, 1) IN ('+', '#') THEN false
        WHEN filter = '#' THEN true
        ELSE topic ~ ('^' || regexp_replace(regexp_replace(
            regexp_replace(filter, '([][().*?{}|^$\\+])', '\\\1', 'g'),
            '(^|/)\\\+(?=/|$)', '\1[^/]*', 'g'),
            '/#$', '(/.*)?') || '$')
    END
$function$;
COMMENT ON FUNCTION howdah.topic_matches(text, text) IS
    'Whether an MQTT topic matches a filter, such as plant/+/temperature or plant/#.';

CREATE OR REPLACE VIEW howdah.session_status AS
SELECT
    s.vhost,
    s.client_id,
    s.user_name,
    s.protocol,
    s.state,
    s.connected_at,
    s.disconnected_at,
    s.expiry_seconds,
    CASE s.state
        WHEN 'disconnected' THEN s.disconnected_at + make_interval(secs => s.expiry_seconds)
    END AS ends_at,
    (SELECT count(*) FROM howdah.subscription f WHERE f.session_id = s.id) AS subscriptions,
    s.queue_name AS queue,
    (SELECT l.lag FROM howdah.consumer_lag l WHERE l.vhost = s.vhost AND l.queue = s.queue_name)
        AS messages,
    s.id AS session_id
FROM howdah.session s;
COMMENT ON VIEW howdah.session_status IS
    'MQTT sessions that outlive their connections, and what waits for each.';
COMMENT ON COLUMN howdah.session_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.session_status.client_id IS 'Client identifier.';
COMMENT ON COLUMN howdah.session_status.user_name IS 'User; null: anonymous.';
COMMENT ON COLUMN howdah.session_status.protocol IS 'Protocol and version of the last connection.';
COMMENT ON COLUMN howdah.session_status.state IS 'connected or disconnected.';
COMMENT ON COLUMN howdah.session_status.connected_at IS 'When it last connected.';
COMMENT ON COLUMN howdah.session_status.disconnected_at IS
    'When its connection ended; null: it is connected.';
COMMENT ON COLUMN howdah.session_status.expiry_seconds IS
    'How long it outlives its connection; null: for ever.';
COMMENT ON COLUMN howdah.session_status.ends_at IS
    'When it ends unless its client comes back; null: never, or it is connected.';
COMMENT ON COLUMN howdah.session_status.subscriptions IS 'How many subscriptions it has.';
COMMENT ON COLUMN howdah.session_status.queue IS 'Queue that fills while the client is away.';
COMMENT ON COLUMN howdah.session_status.messages IS 'Messages that wait there or are in flight.';
COMMENT ON COLUMN howdah.session_status.session_id IS 'Session.';

CREATE OR REPLACE VIEW howdah.session_subscriptions AS
SELECT
    s.vhost, s.client_id, f.filter, f.qos, f.no_local, f.retain_as_published, f.retain_handling,
    f.identifier, f.created_at, s.id AS session_id
FROM howdah.subscription f
JOIN howdah.session s ON s.id = f.session_id;
COMMENT ON VIEW howdah.session_subscriptions IS 'Subscriptions of MQTT sessions that are stored.';
COMMENT ON COLUMN howdah.session_subscriptions.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.session_subscriptions.client_id IS 'Client identifier.';
COMMENT ON COLUMN howdah.session_subscriptions.filter IS 'Topic filter, with $share/<group>/ if shared.';
COMMENT ON COLUMN howdah.session_subscriptions.qos IS 'Quality of service that was granted.';
COMMENT ON COLUMN howdah.session_subscriptions.no_local IS 'Not what the client itself publishes.';
COMMENT ON COLUMN howdah.session_subscriptions.retain_as_published IS 'The retain flag stays as it was.';
COMMENT ON COLUMN howdah.session_subscriptions.retain_handling IS
    'Retained messages: 0 at once, 1 if the subscription is new, 2 none.';
COMMENT ON COLUMN howdah.session_subscriptions.identifier IS 'Subscription identifier; null: none.';
COMMENT ON COLUMN howdah.session_subscriptions.created_at IS 'When it was made.';
COMMENT ON COLUMN howdah.session_subscriptions.session_id IS 'Session.';

CREATE OR REPLACE VIEW howdah.retained_messages AS
SELECT
    r.vhost, r.topic, r.qos, r.retained_at, r.expires_at, r.content_type, r.content_encoding,
    r.correlation_id, r.reply_to, r.headers, r.publisher, howdah.protocol_name(r.form) AS protocol,
    octet_length(r.body) AS body_bytes, r.body
FROM howdah.retained r
WHERE r.expires_at IS NULL OR r.expires_at > now();
COMMENT ON VIEW howdah.retained_messages IS
    'Values that topics keep for whoever subscribes; see topic_matches().';
COMMENT ON COLUMN howdah.retained_messages.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.retained_messages.topic IS 'Topic, in slash form.';
COMMENT ON COLUMN howdah.retained_messages.qos IS 'Quality of service that it was published with.';
COMMENT ON COLUMN howdah.retained_messages.retained_at IS 'When it was published.';
COMMENT ON COLUMN howdah.retained_messages.expires_at IS 'When it is worth nothing; null: never.';
COMMENT ON COLUMN howdah.retained_messages.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.retained_messages.content_encoding IS 'Encoding of the body.';
COMMENT ON COLUMN howdah.retained_messages.correlation_id IS 'What it answers or belongs to.';
COMMENT ON COLUMN howdah.retained_messages.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.retained_messages.headers IS 'User properties.';
COMMENT ON COLUMN howdah.retained_messages.publisher IS 'Who published, stamped by the gateway.';
COMMENT ON COLUMN howdah.retained_messages.protocol IS 'Protocol that it was published with.';
COMMENT ON COLUMN howdah.retained_messages.body_bytes IS 'Size of the body.';
COMMENT ON COLUMN howdah.retained_messages.body IS 'The payload; see body_text().';

CREATE OR REPLACE VIEW howdah.etl_status AS
SELECT
    c.job, c.target, q.vhost, q.name AS queue, q.kind, c."offset", t.tail,
    greatest(t.tail - c."offset", 0) AS lag,
    c.messages, c.changed_at, c.changed_by, c.queue_id
FROM howdah.etl_checkpoint c
LEFT JOIN howdah.queue q ON q.id = c.queue_id
CROSS JOIN LATERAL (
    SELECT howdah.newest_offset(c.queue_id, (TABLE howdah.view_key)) + 1 AS tail
    OFFSET 0
) t;
COMMENT ON VIEW howdah.etl_status IS 'How far each Spark job has come, and how far it is behind.';
COMMENT ON COLUMN howdah.etl_status.job IS 'export or replay.';
COMMENT ON COLUMN howdah.etl_status.target IS 'Where it writes to.';
COMMENT ON COLUMN howdah.etl_status.vhost IS 'Virtual host; null: the queue is gone.';
COMMENT ON COLUMN howdah.etl_status.queue IS 'Name of the queue; null: it is gone.';
COMMENT ON COLUMN howdah.etl_status.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.etl_status."offset" IS 'All below is done.';
COMMENT ON COLUMN howdah.etl_status.tail IS 'Offset behind the newest message; null: none is stored.';
COMMENT ON COLUMN howdah.etl_status.lag IS 'Offsets that the job has before it.';
COMMENT ON COLUMN howdah.etl_status.messages IS 'Messages written so far.';
COMMENT ON COLUMN howdah.etl_status.changed_at IS 'When it last came further.';
COMMENT ON COLUMN howdah.etl_status.changed_by IS 'Login of the job.';
COMMENT ON COLUMN howdah.etl_status.queue_id IS 'Queue.';

CREATE OR REPLACE VIEW howdah.segment_status AS
SELECT
    g.id AS segment_id,
    q.vhost,
    q.name AS queue,
    CASE
        WHEN g.retired_at IS NOT NULL THEN 'retired'
        WHEN g.sealed_at IS NOT NULL THEN 'sealed'
        ELSE 'open'
    END AS state,
    g.created_at, g.sealed_at, g.retired_at, g.newest_at, g.messages, g.bytes,
    coalesce(pg_total_relation_size(to_regclass('howdah.message_' || g.id)), 0)
        + coalesce(pg_total_relation_size(to_regclass('howdah.message_body_' || g.id)), 0)
        AS disk_bytes,
    g.archive
FROM howdah.segment g
LEFT JOIN howdah.queue q ON q.id = g.queue_id;
COMMENT ON VIEW howdah.segment_status IS 'Segments of the log, and what each takes on disk.';
COMMENT ON COLUMN howdah.segment_status.segment_id IS 'Number of message_<id> and message_body_<id>.';
COMMENT ON COLUMN howdah.segment_status.vhost IS 'Virtual host of the stream that owns it.';
COMMENT ON COLUMN howdah.segment_status.queue IS 'Stream that owns it; null: all classic queues.';
COMMENT ON COLUMN howdah.segment_status.state IS 'open, sealed, or retired: waits to be dropped.';
COMMENT ON COLUMN howdah.segment_status.created_at IS 'When it was opened.';
COMMENT ON COLUMN howdah.segment_status.sealed_at IS 'When it was closed for writing.';
COMMENT ON COLUMN howdah.segment_status.retired_at IS 'Since when nobody needs it.';
COMMENT ON COLUMN howdah.segment_status.newest_at IS 'Time of its newest message, known when sealed.';
COMMENT ON COLUMN howdah.segment_status.messages IS 'Rows in it, known when sealed.';
COMMENT ON COLUMN howdah.segment_status.bytes IS 'Bytes in it, known when sealed.';
COMMENT ON COLUMN howdah.segment_status.disk_bytes IS 'Size of its tables and indexes on disk.';
COMMENT ON COLUMN howdah.segment_status.archive IS 'Where a copy was archived; null: nowhere.';
