-- Tables between SQL and a running gateway: what SQL asks for, what the gateway notes for people, and
-- how far the Spark jobs have come.

CREATE TABLE howdah.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    vhost text NOT NULL,
    not_before timestamptz,
    retain boolean DEFAULT false NOT NULL,
    requested_by text NOT NULL,
    inserted_at timestamptz DEFAULT now() NOT NULL,
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
    waiting_for text[],
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
);
CREATE INDEX outbox_waiting_idx ON howdah.outbox (id) WHERE waiting_for IS NOT NULL;
ALTER TABLE howdah.outbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE howdah.outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE howdah.outbox IS 'Messages published from SQL; the gateway takes committed rows away, exactly once.';
COMMENT ON COLUMN howdah.outbox.id IS 'What publish() returned.';
COMMENT ON COLUMN howdah.outbox.vhost IS 'Virtual host to publish in.';
COMMENT ON COLUMN howdah.outbox.not_before IS 'Not delivered before; null: at once.';
COMMENT ON COLUMN howdah.outbox.retain IS 'Becomes the last value of its topic as well.';
COMMENT ON COLUMN howdah.outbox.requested_by IS 'Login that called publish().';
COMMENT ON COLUMN howdah.outbox.inserted_at IS 'When it was inserted.';
COMMENT ON COLUMN howdah.outbox.expires_at IS 'When it is worth nothing any more; null: never.';
COMMENT ON COLUMN howdah.outbox.priority IS '0 to 255 as published; null: none given.';
COMMENT ON COLUMN howdah.outbox.durable IS 'Publisher asked for it to survive a restart.';
COMMENT ON COLUMN howdah.outbox.exchange IS 'Exchange published to; empty: the default exchange.';
COMMENT ON COLUMN howdah.outbox.routing_key IS 'Routing key in dot form; the MQTT topic, rewritten.';
COMMENT ON COLUMN howdah.outbox.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.outbox.content_encoding IS 'Encoding of the body, such as gzip.';
COMMENT ON COLUMN howdah.outbox.message_id IS 'Identifier given by the publisher, as text.';
COMMENT ON COLUMN howdah.outbox.correlation_id IS 'What the message answers or belongs to, as text.';
COMMENT ON COLUMN howdah.outbox.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.outbox.subject IS 'Subject (AMQP 1.0) or type (AMQP 0.9.1).';
COMMENT ON COLUMN howdah.outbox.app_id IS 'Application that published, by its own word.';
COMMENT ON COLUMN howdah.outbox.user_id IS 'User that published, checked against the login.';
COMMENT ON COLUMN howdah.outbox.group_id IS 'Group that the message belongs to.';
COMMENT ON COLUMN howdah.outbox.created_at IS 'When the publisher says it made the message.';
COMMENT ON COLUMN howdah.outbox.headers IS 'Application headers by name; the first of a repeated name.';
COMMENT ON COLUMN howdah.outbox.publisher IS 'Who published, stamped by the gateway; cannot be forged.';
COMMENT ON COLUMN howdah.outbox.form IS 'Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4 AMQP 1.0; see protocol_name().';
COMMENT ON COLUMN howdah.outbox.native IS 'Properties as the publisher encoded them: a consumer of the same protocol gets them byte for byte.';
COMMENT ON COLUMN howdah.outbox.body IS 'The payload.';
COMMENT ON COLUMN howdah.outbox.waiting_for IS 'Full queues that it still has to enter; null: the gateway has not looked at it yet.';

CREATE TABLE howdah.command (
    id bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    vhost text NOT NULL,
    queue text NOT NULL,
    argument jsonb DEFAULT '{}' NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamptz DEFAULT now() NOT NULL,
    done_at timestamptz,
    result jsonb,
    error text,
    CONSTRAINT command_pkey PRIMARY KEY (id)
);
CREATE INDEX command_open_idx ON howdah.command (id) WHERE done_at IS NULL;
COMMENT ON TABLE howdah.command IS 'What people asked the gateway to do, through purge(), redrive() and their like.';
COMMENT ON COLUMN howdah.command.id IS 'What the function that asked for it returned.';
COMMENT ON COLUMN howdah.command.kind IS 'What is asked for, such as purge or redrive.';
COMMENT ON COLUMN howdah.command.vhost IS 'Virtual host of the queue.';
COMMENT ON COLUMN howdah.command.queue IS 'Queue that it is about.';
COMMENT ON COLUMN howdah.command.argument IS 'What else the gateway must know.';
COMMENT ON COLUMN howdah.command.requested_by IS 'Login that asked for it.';
COMMENT ON COLUMN howdah.command.requested_at IS 'When it was asked for.';
COMMENT ON COLUMN howdah.command.done_at IS 'When it was done or had failed; null: not yet.';
COMMENT ON COLUMN howdah.command.result IS 'What came of it.';
COMMENT ON COLUMN howdah.command.error IS 'Why it failed; null: it did not.';

CREATE TABLE howdah.queue_activity (
    queue_id bigint NOT NULL,
    in_flight bigint NOT NULL,
    consumers integer NOT NULL,
    noted_at timestamptz NOT NULL,
    CONSTRAINT queue_activity_pkey PRIMARY KEY (queue_id),
    CONSTRAINT queue_activity_queue_id_fkey FOREIGN KEY(queue_id) REFERENCES howdah.queue (id) ON DELETE CASCADE
);
ALTER TABLE howdah.queue_activity SET (fillfactor = 50);
COMMENT ON TABLE howdah.queue_activity IS 'What only the gateway''s memory knows of a queue, noted every few seconds.';
COMMENT ON COLUMN howdah.queue_activity.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.queue_activity.in_flight IS 'Delivered, not settled yet.';
COMMENT ON COLUMN howdah.queue_activity.consumers IS 'Consumers attached.';
COMMENT ON COLUMN howdah.queue_activity.noted_at IS 'When the gateway noted this.';

-- Not logged: it is true only while that gateway runs, and changes all the time.
CREATE UNLOGGED TABLE howdah.consumer (
    number bigint NOT NULL,
    epoch bigint NOT NULL,
    queue_id bigint NOT NULL,
    group_name text,
    tag text NOT NULL,
    state text NOT NULL,
    protocol text NOT NULL,
    user_name text NOT NULL,
    client text NOT NULL,
    address text NOT NULL,
    arguments jsonb NOT NULL,
    prefetch integer,
    credit integer,
    priority integer NOT NULL,
    is_exclusive boolean NOT NULL,
    auto_settle boolean NOT NULL,
    since timestamptz NOT NULL,
    in_flight bigint NOT NULL,
    held int8multirange[] NOT NULL,
    held_since timestamptz[] NOT NULL,
    noted_at timestamptz NOT NULL,
    CONSTRAINT consumer_pkey PRIMARY KEY (number)
);
-- Always updated in place; room on the page keeps its index out of it.
ALTER TABLE howdah.consumer SET (fillfactor = 50);
COMMENT ON TABLE howdah.consumer IS
    'Consumers of durable queues, as the running gateway notes them; see consumer_status and in_flight.';
COMMENT ON COLUMN howdah.consumer.number IS 'Tells consumers of one gateway apart.';
COMMENT ON COLUMN howdah.consumer.epoch IS 'Epoch of the gateway that noted it; others do not count.';
COMMENT ON COLUMN howdah.consumer.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.consumer.group_name IS
    'Consumer group of a stream, empty for a classic queue; null: a position of its own.';
COMMENT ON COLUMN howdah.consumer.tag IS 'Consumer tag, link name or subscription.';
COMMENT ON COLUMN howdah.consumer.state IS 'active, waiting, paused or cancelled.';
COMMENT ON COLUMN howdah.consumer.protocol IS 'Protocol and version.';
COMMENT ON COLUMN howdah.consumer.user_name IS 'User of the gateway.';
COMMENT ON COLUMN howdah.consumer.client IS 'Name that the client has for itself.';
COMMENT ON COLUMN howdah.consumer.address IS 'Where it is connected from.';
COMMENT ON COLUMN howdah.consumer.arguments IS 'Arguments as given, word for word.';
COMMENT ON COLUMN howdah.consumer.prefetch IS 'Messages that it takes at once; null: no limit of its own.';
COMMENT ON COLUMN howdah.consumer.credit IS 'Messages that it would take now; null: no limit.';
COMMENT ON COLUMN howdah.consumer.priority IS 'Those with a higher one are served first.';
COMMENT ON COLUMN howdah.consumer.is_exclusive IS 'It is the only one, by its own wish.';
COMMENT ON COLUMN howdah.consumer.auto_settle IS 'Messages are settled by being delivered.';
COMMENT ON COLUMN howdah.consumer.since IS 'When it began.';
COMMENT ON COLUMN howdah.consumer.in_flight IS 'Messages delivered to it and not settled.';
COMMENT ON COLUMN howdah.consumer.held IS 'Offsets of the oldest of them.';
COMMENT ON COLUMN howdah.consumer.held_since IS 'Since when those at the same place are there.';
COMMENT ON COLUMN howdah.consumer.noted_at IS 'When the gateway noted this.';

CREATE TABLE howdah.etl_checkpoint (
    job text NOT NULL,
    target text NOT NULL,
    queue_id bigint NOT NULL,
    "offset" bigint NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    changed_at timestamptz DEFAULT now() NOT NULL,
    changed_by text DEFAULT CURRENT_USER NOT NULL,
    CONSTRAINT etl_checkpoint_pkey PRIMARY KEY (job, target, queue_id)
);
COMMENT ON TABLE howdah.etl_checkpoint IS
    'How far each Spark job has come: one row per job, target and queue.';
COMMENT ON COLUMN howdah.etl_checkpoint.job IS 'export or replay.';
COMMENT ON COLUMN howdah.etl_checkpoint.target IS
    'Where it writes to: a directory, or the name of a replay.';
COMMENT ON COLUMN howdah.etl_checkpoint.queue_id IS 'Queue that it reads.';
COMMENT ON COLUMN howdah.etl_checkpoint."offset" IS 'All up to this offset is done; -1: nothing.';
COMMENT ON COLUMN howdah.etl_checkpoint.messages IS 'Messages done so far.';
COMMENT ON COLUMN howdah.etl_checkpoint.changed_at IS 'When it last moved.';
COMMENT ON COLUMN howdah.etl_checkpoint.changed_by IS 'Login that moved it.';

CREATE TABLE howdah.archive_mark (
    queue_id bigint NOT NULL,
    marked_at timestamptz DEFAULT now() NOT NULL,
    marked_by text NOT NULL,
    CONSTRAINT archive_mark_pkey PRIMARY KEY (queue_id)
);
COMMENT ON TABLE howdah.archive_mark IS
    'Logs whose segments are kept until segment.archive says where a copy is; see '
    'keep_for_archive().';
COMMENT ON COLUMN howdah.archive_mark.queue_id IS
    'Stream whose segments are kept; 0: those that the classic queues share.';
COMMENT ON COLUMN howdah.archive_mark.marked_at IS 'When it was marked.';
COMMENT ON COLUMN howdah.archive_mark.marked_by IS 'Login that marked it.';
