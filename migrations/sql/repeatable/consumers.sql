-- Who consumes, and which messages are in whose hands, as the gateway notes it in howdah.consumer.
-- The functions are open to everybody, since a view calls them with the rights of its reader: one says
-- whether anybody serves, the other only unfolds what it is given.

CREATE OR REPLACE FUNCTION howdah.is_served() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- The lock that a node's sessions hold for as long as it lives; one that only waits serves nobody.
    RETURN EXISTS (
        SELECT FROM pg_locks l JOIN howdah.node n ON l.objid = n.id::oid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.classid = 1752135524::oid AND n.state IN ('up', 'leaving')
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$function$;
COMMENT ON FUNCTION howdah.is_served() IS 'Whether a gateway owns this database now.';

CREATE OR REPLACE FUNCTION howdah.held_offsets(held int8multirange[], held_since timestamptz[])
RETURNS TABLE ("offset" bigint, since timestamptz)
LANGUAGE plpgsql IMMUTABLE COST 1 ROWS 10
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT o.n, h.since
        FROM unnest(held_offsets.held, held_offsets.held_since) AS h (offsets, since)
        CROSS JOIN LATERAL unnest(h.offsets) AS r (span)
        CROSS JOIN LATERAL generate_series(lower(r.span), upper(r.span) - 1) AS o (n);
END
$function$;
COMMENT ON FUNCTION howdah.held_offsets(int8multirange[], timestamptz[]) IS
    'The offsets that a consumer has, each with since when. Internal: for the views.';

CREATE OR REPLACE VIEW howdah.consumer_status AS
SELECT
    q.vhost,
    q.name AS queue,
    q.kind,
    c.group_name,
    c.tag,
    c.state,
    c.protocol,
    c.user_name,
    c.client,
    c.address,
    c.prefetch,
    c.credit,
    c.in_flight,
    (SELECT count(*) FROM howdah.held_offsets(c.held, c.held_since)) AS listed,
    now() - (SELECT min(s.since) FROM unnest(c.held_since) AS s (since)) AS oldest_age,
    c.priority,
    c.is_exclusive,
    c.auto_settle,
    c.arguments,
    c.since,
    c.noted_at,
    c.number AS consumer_id,
    q.id AS queue_id
FROM howdah.consumer c
JOIN howdah.queue q ON q.id = c.queue_id
WHERE c.epoch = (SELECT g.epoch FROM howdah.gateway g) AND (SELECT howdah.is_served());
COMMENT ON VIEW howdah.consumer_status IS
    'Consumers of durable queues at this moment, as far as the gateway has noted them: it looks about '
    'once a second, and lists 10,000 at most. Empty while no gateway runs. Not on a standby.';
COMMENT ON COLUMN howdah.consumer_status.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.consumer_status.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.consumer_status.kind IS 'classic or stream.';
COMMENT ON COLUMN howdah.consumer_status.group_name IS
    'Consumer group of a stream, empty for a classic queue; null: a position of its own.';
COMMENT ON COLUMN howdah.consumer_status.tag IS
    'Consumer tag (AMQP 0.9.1), link (AMQP 1.0) or subscription (MQTT); empty: a session''s own queue, or '
    'single messages taken by basic.get.';
COMMENT ON COLUMN howdah.consumer_status.state IS
    'active: it gets messages; waiting: another is the single active consumer; paused: its connection '
    'takes no more for now; cancelled: it gets none any more, and may settle what it has.';
COMMENT ON COLUMN howdah.consumer_status.protocol IS 'Protocol and version.';
COMMENT ON COLUMN howdah.consumer_status.user_name IS 'User of the gateway.';
COMMENT ON COLUMN howdah.consumer_status.client IS
    'Name that the client has for itself: client identifier, container, connection_name.';
COMMENT ON COLUMN howdah.consumer_status.address IS 'Where it is connected from.';
COMMENT ON COLUMN howdah.consumer_status.prefetch IS
    'Messages that it takes at once; null: no limit of its own, or by credit (AMQP 1.0).';
COMMENT ON COLUMN howdah.consumer_status.credit IS 'Messages that it would take now; null: no limit.';
COMMENT ON COLUMN howdah.consumer_status.in_flight IS 'Messages delivered to it and not settled.';
COMMENT ON COLUMN howdah.consumer_status.listed IS
    'How many of them the view in_flight lists, the oldest: 1,000 at most, fewer with many consumers.';
COMMENT ON COLUMN howdah.consumer_status.oldest_age IS
    'How long it has had the oldest of them, to about a second; null: it has none.';
COMMENT ON COLUMN howdah.consumer_status.priority IS 'Those with a higher one are served first.';
COMMENT ON COLUMN howdah.consumer_status.is_exclusive IS 'It is the only one, by its own wish.';
COMMENT ON COLUMN howdah.consumer_status.auto_settle IS 'Messages are settled by being delivered.';
COMMENT ON COLUMN howdah.consumer_status.arguments IS
    'Arguments as given, with an effect here or without; filters of AMQP 1.0.';
COMMENT ON COLUMN howdah.consumer_status.since IS 'When it began.';
COMMENT ON COLUMN howdah.consumer_status.noted_at IS 'When the gateway last saw a change of it.';
COMMENT ON COLUMN howdah.consumer_status.consumer_id IS 'Tells consumers apart; see in_flight.';
COMMENT ON COLUMN howdah.consumer_status.queue_id IS 'Queue.';

CREATE OR REPLACE VIEW howdah.in_flight AS
SELECT
    q.vhost,
    q.name AS queue,
    c.group_name,
    h."offset",
    h.since,
    c.tag,
    c.protocol,
    c.user_name,
    c.client,
    c.address,
    c.noted_at,
    c.number AS consumer_id,
    q.id AS queue_id
FROM howdah.consumer c
JOIN howdah.queue q ON q.id = c.queue_id
CROSS JOIN LATERAL howdah.held_offsets(c.held, c.held_since) h
WHERE c.epoch = (SELECT g.epoch FROM howdah.gateway g) AND (SELECT howdah.is_served());
COMMENT ON VIEW howdah.in_flight IS
    'Messages of durable queues that are delivered and not settled, with whom and since when, as far as '
    'the gateway has noted them: it looks about once a second, and lists the oldest of each consumer; '
    'see listed in consumer_status. Empty while no gateway runs. Not on a standby.';
COMMENT ON COLUMN howdah.in_flight.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.in_flight.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.in_flight.group_name IS
    'Consumer group of a stream, empty for a classic queue; null: a position of its own.';
COMMENT ON COLUMN howdah.in_flight."offset" IS 'Place in the queue; see ready_messages and peek().';
COMMENT ON COLUMN howdah.in_flight.since IS
    'Since when the consumer has it: the first look that found it there, about a second late.';
COMMENT ON COLUMN howdah.in_flight.tag IS 'Consumer tag, link or subscription.';
COMMENT ON COLUMN howdah.in_flight.protocol IS 'Protocol and version.';
COMMENT ON COLUMN howdah.in_flight.user_name IS 'User of the gateway.';
COMMENT ON COLUMN howdah.in_flight.client IS 'Name that the client has for itself.';
COMMENT ON COLUMN howdah.in_flight.address IS 'Where it is connected from.';
COMMENT ON COLUMN howdah.in_flight.noted_at IS 'When the gateway last saw a change of the consumer.';
COMMENT ON COLUMN howdah.in_flight.consumer_id IS 'Consumer; see consumer_status.';
COMMENT ON COLUMN howdah.in_flight.queue_id IS 'Queue.';
