-- Tables of the log and its journal: messages in segments, and what became of them in generations.

CREATE TABLE howdah.segment (
    id integer GENERATED ALWAYS AS IDENTITY,
    queue_id bigint,
    created_at timestamptz DEFAULT now() NOT NULL,
    sealed_at timestamptz,
    messages bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    newest_at timestamptz,
    retired_at timestamptz,
    archive text,
    CONSTRAINT segment_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE howdah.segment IS 'Segments of the log: one partition of message and one of message_body each.';
COMMENT ON COLUMN howdah.segment.id IS 'Number of the partitions message_<id> and message_body_<id>.';
COMMENT ON COLUMN howdah.segment.queue_id IS 'Stream that owns it; null: shared by all classic queues.';
COMMENT ON COLUMN howdah.segment.created_at IS 'When it was opened.';
COMMENT ON COLUMN howdah.segment.sealed_at IS 'When it was closed for writing; null: still open.';
COMMENT ON COLUMN howdah.segment.messages IS 'Rows in it, known when sealed.';
COMMENT ON COLUMN howdah.segment.bytes IS 'Bytes in it, known when sealed.';
COMMENT ON COLUMN howdah.segment.newest_at IS 'Time of its newest message, known when sealed.';
COMMENT ON COLUMN howdah.segment.retired_at IS 'Since when nobody needs it, while a reader keeps it from being dropped; null: needed, or dropped at once.';
COMMENT ON COLUMN howdah.segment.archive IS 'Where a copy was archived; null: nowhere.';

CREATE TABLE howdah.message (
    segment_id integer NOT NULL,
    queue_id bigint NOT NULL,
    "offset" bigint NOT NULL,
    enqueued_at timestamptz NOT NULL,
    not_before timestamptz,
    deaths jsonb,
    delivery jsonb,
    body_id bigint,
    expires_at timestamptz,
    priority smallint,
    durable boolean NOT NULL,
    exchange text NOT NULL,
    routing_key text NOT NULL,
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
    form smallint DEFAULT 0 NOT NULL,
    native bytea,
    body bytea,
    CONSTRAINT message_pkey PRIMARY KEY (queue_id, "offset", segment_id)
) PARTITION BY LIST (segment_id);
-- Few messages have a time before which they are not delivered; only those are in this index.
CREATE INDEX message_delayed_idx ON howdah.message (queue_id, not_before)
    WHERE not_before IS NOT NULL;
ALTER TABLE howdah.message ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE howdah.message IS 'The log: every message in every durable queue. Inserted, never updated; segments are dropped whole. What is settled says settlement; see ready_messages.';
COMMENT ON COLUMN howdah.message.segment_id IS 'Segment that it lies in; partition key.';
COMMENT ON COLUMN howdah.message.queue_id IS 'Queue that it is in.';
COMMENT ON COLUMN howdah.message."offset" IS 'Place in the queue: without gaps, in order of commit.';
COMMENT ON COLUMN howdah.message.enqueued_at IS 'When it entered this queue.';
COMMENT ON COLUMN howdah.message.not_before IS 'Not delivered before; null: at once.';
COMMENT ON COLUMN howdah.message.deaths IS 'Where it was dead-lettered, newest first: queue, reason, count, time (Unix seconds), exchange, routing_keys.';
COMMENT ON COLUMN howdah.message.delivery IS 'What the subscriber''s protocol needs for this copy.';
COMMENT ON COLUMN howdah.message.body_id IS 'The body is in message_body; null: it is here.';
COMMENT ON COLUMN howdah.message.expires_at IS 'When it is worth nothing any more; null: never.';
COMMENT ON COLUMN howdah.message.priority IS '0 to 255 as published; null: none given.';
COMMENT ON COLUMN howdah.message.durable IS 'Publisher asked for it to survive a restart.';
COMMENT ON COLUMN howdah.message.exchange IS 'Exchange published to; empty: the default exchange.';
COMMENT ON COLUMN howdah.message.routing_key IS 'Routing key in dot form; the MQTT topic, rewritten.';
COMMENT ON COLUMN howdah.message.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.message.content_encoding IS 'Encoding of the body, such as gzip.';
COMMENT ON COLUMN howdah.message.message_id IS 'Identifier given by the publisher, as text.';
COMMENT ON COLUMN howdah.message.correlation_id IS 'What the message answers or belongs to, as text.';
COMMENT ON COLUMN howdah.message.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.message.subject IS 'Subject (AMQP 1.0) or type (AMQP 0.9.1).';
COMMENT ON COLUMN howdah.message.app_id IS 'Application that published, by its own word.';
COMMENT ON COLUMN howdah.message.user_id IS 'User that published, checked against the login.';
COMMENT ON COLUMN howdah.message.group_id IS 'Group that the message belongs to.';
COMMENT ON COLUMN howdah.message.created_at IS 'When the publisher says it made the message.';
COMMENT ON COLUMN howdah.message.headers IS 'Application headers by name; the first of a repeated name.';
COMMENT ON COLUMN howdah.message.publisher IS 'Who published, stamped by the gateway; cannot be forged.';
COMMENT ON COLUMN howdah.message.form IS 'Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4 AMQP 1.0; see protocol_name().';
COMMENT ON COLUMN howdah.message.native IS 'Properties as the publisher encoded them: a consumer of the same protocol gets them byte for byte.';
COMMENT ON COLUMN howdah.message.body IS 'The payload.';

CREATE TABLE howdah.message_body (
    segment_id integer NOT NULL,
    id bigint NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT message_body_pkey PRIMARY KEY (id, segment_id)
) PARTITION BY LIST (segment_id);
ALTER TABLE howdah.message_body ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE howdah.message_body IS 'Large bodies routed to several queues, once a segment.';
COMMENT ON COLUMN howdah.message_body.segment_id IS 'Segment that it lies in; partition key.';
COMMENT ON COLUMN howdah.message_body.id IS 'What message.body_id refers to.';
COMMENT ON COLUMN howdah.message_body.body IS 'The payload.';

CREATE TABLE howdah.settlement (
    generation integer NOT NULL,
    seq bigint NOT NULL,
    queue_id bigint NOT NULL,
    group_name text NOT NULL,
    floor bigint NOT NULL,
    acked int8multirange DEFAULT '{}' NOT NULL,
    is_full boolean NOT NULL,
    handed_out bigint DEFAULT 0 NOT NULL,
    written_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT settlement_pkey PRIMARY KEY (queue_id, group_name, seq, generation)
) PARTITION BY LIST (generation);
COMMENT ON TABLE howdah.settlement IS 'What is settled, one row per group and flush. State of a group: from its newest full row on, the highest floor and the union of acked; see settlement_state.';
COMMENT ON COLUMN howdah.settlement.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.settlement.seq IS 'Order of the rows, numbered by the gateway.';
COMMENT ON COLUMN howdah.settlement.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.settlement.group_name IS 'Consumer group of a stream; empty for a classic queue.';
COMMENT ON COLUMN howdah.settlement.floor IS 'All offsets below are settled.';
COMMENT ON COLUMN howdah.settlement.acked IS 'Offsets settled above the floor, since the row before or, if is_full, in all.';
COMMENT ON COLUMN howdah.settlement.is_full IS 'Rows before this one do not count any more.';
COMMENT ON COLUMN howdah.settlement.handed_out IS 'Offsets below may have been delivered; after a crash they are flagged as redelivered.';
COMMENT ON COLUMN howdah.settlement.written_at IS 'When the row was written.';

CREATE TABLE howdah.redelivery (
    generation integer NOT NULL,
    queue_id bigint NOT NULL,
    "offset" bigint NOT NULL,
    count integer NOT NULL,
    not_before timestamptz,
    reason text,
    written_at timestamptz DEFAULT now() NOT NULL,
    amended integer DEFAULT 0 NOT NULL,
    amendment bytea,
    CONSTRAINT redelivery_pkey PRIMARY KEY (queue_id, "offset", count, amended, generation)
) PARTITION BY LIST (generation);
CREATE INDEX redelivery_delayed_idx ON howdah.redelivery (queue_id, not_before)
    WHERE not_before IS NOT NULL;
COMMENT ON TABLE howdah.redelivery IS 'Deliveries that failed.';
COMMENT ON COLUMN howdah.redelivery.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.redelivery.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.redelivery."offset" IS 'Message whose delivery failed.';
COMMENT ON COLUMN howdah.redelivery.count IS 'How often it failed; the highest row counts.';
COMMENT ON COLUMN howdah.redelivery.not_before IS 'Not delivered again before; null: at once.';
COMMENT ON COLUMN howdah.redelivery.reason IS 'Why the delivery failed.';
COMMENT ON COLUMN howdah.redelivery.written_at IS 'When the row was written.';
COMMENT ON COLUMN howdah.redelivery.amended IS 'Tells rows of the same count apart: one more each time a consumer adds something to the message, or releases it for a later time.';
COMMENT ON COLUMN howdah.redelivery.amendment IS 'All that consumers added to the message; null: nothing. The row with the highest amended counts.';

CREATE TABLE howdah.deduplication (
    generation integer NOT NULL,
    queue_id bigint NOT NULL,
    message_id text NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT deduplication_pkey PRIMARY KEY (queue_id, message_id, seen_at, generation)
) PARTITION BY LIST (generation);
COMMENT ON TABLE howdah.deduplication IS 'Message identifiers that a queue has seen within its window.';
COMMENT ON COLUMN howdah.deduplication.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.deduplication.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.deduplication.message_id IS 'Message identifier that was taken.';
COMMENT ON COLUMN howdah.deduplication.seen_at IS 'When it was taken.';

CREATE TABLE howdah.packet (
    generation integer NOT NULL,
    seq bigint NOT NULL,
    session_id bigint NOT NULL,
    direction smallint NOT NULL,
    packet_id integer NOT NULL,
    state smallint NOT NULL,
    queue_id bigint,
    "offset" bigint,
    written_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT packet_pkey PRIMARY KEY (session_id, direction, packet_id, seq, generation)
) PARTITION BY LIST (generation);
COMMENT ON TABLE howdah.packet IS 'MQTT packet identifiers in flight, so that QoS 2 survives a restart.';
COMMENT ON COLUMN howdah.packet.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.packet.seq IS 'Order of the rows, numbered by the gateway.';
COMMENT ON COLUMN howdah.packet.session_id IS 'Session.';
COMMENT ON COLUMN howdah.packet.direction IS '0: from the client, 1: to the client.';
COMMENT ON COLUMN howdah.packet.packet_id IS 'MQTT packet identifier.';
COMMENT ON COLUMN howdah.packet.state IS 'Where the exchange stands; the newest row counts.';
COMMENT ON COLUMN howdah.packet.queue_id IS 'Queue of the message in flight.';
COMMENT ON COLUMN howdah.packet."offset" IS 'Offset of the message in flight.';
COMMENT ON COLUMN howdah.packet.written_at IS 'When the row was written.';

CREATE TABLE howdah.commit_mark (
    generation integer NOT NULL,
    number bigint NOT NULL,
    messages bigint NOT NULL,
    committed_at timestamptz DEFAULT now() NOT NULL
) PARTITION BY LIST (generation);
COMMENT ON TABLE howdah.commit_mark IS
    'One row for each commit of a gateway, of the newest two generations: a commit whose row is missing '
    'was lost. Has no index: it is written at each commit, and read after a reconnect.';
COMMENT ON COLUMN howdah.commit_mark.generation IS 'Generation of the journal; partition key.';
COMMENT ON COLUMN howdah.commit_mark.number IS 'Number of the commit, given by the gateway.';
COMMENT ON COLUMN howdah.commit_mark.messages IS
    'Offsets that were given to messages by all commits up to this one, of all queues together.';
COMMENT ON COLUMN howdah.commit_mark.committed_at IS 'When the transaction began.';

CREATE TABLE howdah.log_end (
    queue_id bigint NOT NULL,
    noted bigint NOT NULL,
    reserved bigint NOT NULL,
    noted_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT log_end_pkey PRIMARY KEY (queue_id)
);
COMMENT ON TABLE howdah.log_end IS
    'How far the offsets of each queue had come, beside the partitions that hold its messages: it '
    'survives them.';
COMMENT ON COLUMN howdah.log_end.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.log_end.noted IS 'Offsets below were given to messages, for certain.';
COMMENT ON COLUMN howdah.log_end.reserved IS 'Offsets from here on were given to none.';
COMMENT ON COLUMN howdah.log_end.noted_at IS 'When it was written.';

CREATE TABLE howdah.loss (
    id bigint GENERATED ALWAYS AS IDENTITY,
    noted_at timestamptz DEFAULT now() NOT NULL,
    cause text NOT NULL,
    vhost text,
    queue text,
    queue_id bigint,
    first_offset bigint,
    end_offset bigint,
    detail text NOT NULL,
    CONSTRAINT loss_pkey PRIMARY KEY (id)
);
CREATE INDEX loss_queue_idx ON howdah.loss (queue_id) WHERE queue_id IS NOT NULL;
COMMENT ON TABLE howdah.loss IS
    'What was confirmed and is not in the tables any more: after a failover to a standby that was '
    'behind, a restore, or a partition that somebody dropped. Its offsets are not given again.';
COMMENT ON COLUMN howdah.loss.id IS 'Row number.';
COMMENT ON COLUMN howdah.loss.noted_at IS 'When it was noticed.';
COMMENT ON COLUMN howdah.loss.cause IS
    'setback: the database went back in time; unproven: it may have, and nobody can tell; torn: a table '
    'was taken away; repair: found by repair().';
COMMENT ON COLUMN howdah.loss.vhost IS 'Virtual host; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.queue IS 'Name of the queue; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.queue_id IS 'Queue; null: it concerns no queue.';
COMMENT ON COLUMN howdah.loss.first_offset IS 'First offset that has no message; null: no offsets.';
COMMENT ON COLUMN howdah.loss.end_offset IS 'First offset behind it that may have one again.';
COMMENT ON COLUMN howdah.loss.detail IS 'What was lost, or cannot be proven not to be, for people.';
