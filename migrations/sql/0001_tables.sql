-- Tables of Howdah. The same as queue_core/store/schema.py when this revision was written.

CREATE TABLE howdah.gateway (
    id integer NOT NULL CONSTRAINT gateway_only_row_check CHECK (id = 1),
    epoch bigint NOT NULL,
    node text,
    generation integer NOT NULL,
    started_at timestamptz,
    CONSTRAINT gateway_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE howdah.gateway IS 'The gateway that owns this database: one row.';
COMMENT ON COLUMN howdah.gateway.id IS 'Always 1.';
COMMENT ON COLUMN howdah.gateway.epoch IS 'Counts the gateways that have owned this database.';
COMMENT ON COLUMN howdah.gateway.node IS 'Name of the gateway that owns it now, or did last.';
COMMENT ON COLUMN howdah.gateway.generation IS 'Generation of the journal tables that counts.';
COMMENT ON COLUMN howdah.gateway.started_at IS 'When the owner took over.';

CREATE TABLE howdah.vhost (
    name text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT vhost_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah.vhost IS 'Virtual hosts: names of exchanges and queues in one do not meet those of another.';
COMMENT ON COLUMN howdah.vhost.name IS 'Name, such as /.';
COMMENT ON COLUMN howdah.vhost.created_at IS 'When it was made.';

CREATE TABLE howdah."user" (
    name text NOT NULL,
    password_hash text,
    tags text[] DEFAULT '{}' NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    changed_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT user_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah."user" IS 'Who may log in to the gateway. Not a PostgreSQL role.';
COMMENT ON COLUMN howdah."user".name IS 'Login name.';
COMMENT ON COLUMN howdah."user".password_hash IS 'Argon2 or SCRAM verifier; null: no login by password.';
COMMENT ON COLUMN howdah."user".tags IS 'What it may manage.';
COMMENT ON COLUMN howdah."user".created_at IS 'When it was made.';
COMMENT ON COLUMN howdah."user".changed_at IS 'When it was last changed.';

CREATE TABLE howdah.permission (
    user_name text NOT NULL,
    vhost text NOT NULL,
    configure text NOT NULL,
    write text NOT NULL,
    read text NOT NULL,
    CONSTRAINT permission_pkey PRIMARY KEY (user_name, vhost),
    CONSTRAINT permission_user_name_fkey FOREIGN KEY(user_name) REFERENCES howdah."user" (name) ON DELETE CASCADE,
    CONSTRAINT permission_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.permission IS 'What a user may do in a virtual host, by names of exchanges and queues.';
COMMENT ON COLUMN howdah.permission.user_name IS 'User that is allowed.';
COMMENT ON COLUMN howdah.permission.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.permission.configure IS 'Regular expression of what it may declare and delete.';
COMMENT ON COLUMN howdah.permission.write IS 'Regular expression of what it may publish to.';
COMMENT ON COLUMN howdah.permission.read IS 'Regular expression of what it may consume from.';

CREATE TABLE howdah.topic_permission (
    user_name text NOT NULL,
    vhost text NOT NULL,
    exchange text NOT NULL,
    write text NOT NULL,
    read text NOT NULL,
    CONSTRAINT topic_permission_pkey PRIMARY KEY (user_name, vhost, exchange),
    CONSTRAINT topic_permission_user_name_fkey FOREIGN KEY(user_name) REFERENCES howdah."user" (name) ON DELETE CASCADE,
    CONSTRAINT topic_permission_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.topic_permission IS 'What a user may do on a topic exchange, by routing key.';
COMMENT ON COLUMN howdah.topic_permission.user_name IS 'User that is allowed.';
COMMENT ON COLUMN howdah.topic_permission.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.topic_permission.exchange IS 'Topic exchange that the rule is for.';
COMMENT ON COLUMN howdah.topic_permission.write IS 'Regular expression of routing keys it may publish with.';
COMMENT ON COLUMN howdah.topic_permission.read IS 'Regular expression of routing keys it may bind with.';

CREATE TABLE howdah.exchange (
    vhost text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    auto_delete boolean NOT NULL,
    internal boolean NOT NULL,
    arguments jsonb DEFAULT '{}' NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT exchange_pkey PRIMARY KEY (vhost, name),
    CONSTRAINT exchange_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.exchange IS 'Durable exchanges.';
COMMENT ON COLUMN howdah.exchange.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.exchange.name IS 'Name; the amq.* exchanges need no row.';
COMMENT ON COLUMN howdah.exchange.kind IS 'direct, topic, fanout or headers.';
COMMENT ON COLUMN howdah.exchange.auto_delete IS 'Goes with its last binding.';
COMMENT ON COLUMN howdah.exchange.internal IS 'Takes messages from other exchanges only.';
COMMENT ON COLUMN howdah.exchange.arguments IS 'Arguments as declared, word for word.';
COMMENT ON COLUMN howdah.exchange.created_at IS 'When it was declared.';

CREATE TABLE howdah.queue (
    id bigint GENERATED ALWAYS AS IDENTITY,
    vhost text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL CONSTRAINT queue_kind_check CHECK (kind IN ('classic', 'stream')),
    arguments jsonb DEFAULT '{}' NOT NULL,
    created_by text,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT queue_pkey PRIMARY KEY (id),
    CONSTRAINT queue_vhost_name_key UNIQUE (vhost, name),
    CONSTRAINT queue_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.queue IS 'Durable queues.';
COMMENT ON COLUMN howdah.queue.id IS 'Names the queue in the log and the journal; never used again.';
COMMENT ON COLUMN howdah.queue.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.queue.name IS 'Name.';
COMMENT ON COLUMN howdah.queue.kind IS 'classic: each message to one consumer; stream: a log that many read.';
COMMENT ON COLUMN howdah.queue.arguments IS 'Arguments as declared, word for word.';
COMMENT ON COLUMN howdah.queue.created_by IS 'User that declared it.';
COMMENT ON COLUMN howdah.queue.created_at IS 'When it was declared.';

CREATE TABLE howdah.binding (
    id bigint GENERATED ALWAYS AS IDENTITY,
    vhost text NOT NULL,
    source text NOT NULL,
    destination_kind text NOT NULL CONSTRAINT binding_destination_kind_check CHECK (destination_kind IN ('queue', 'exchange')),
    destination text NOT NULL,
    routing_key text NOT NULL,
    arguments jsonb DEFAULT '{}' NOT NULL,
    options jsonb,
    CONSTRAINT binding_pkey PRIMARY KEY (id),
    CONSTRAINT binding_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
CREATE INDEX binding_destination_idx ON howdah.binding (vhost, destination_kind, destination);
CREATE UNIQUE INDEX binding_key ON howdah.binding (vhost, source, destination_kind, destination, md5(routing_key), md5(arguments::text));
COMMENT ON TABLE howdah.binding IS 'Which exchanges feed which queues and exchanges.';
COMMENT ON COLUMN howdah.binding.id IS 'Row number.';
COMMENT ON COLUMN howdah.binding.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.binding.source IS 'Exchange that messages come from.';
COMMENT ON COLUMN howdah.binding.destination_kind IS 'queue or exchange.';
COMMENT ON COLUMN howdah.binding.destination IS 'Queue or exchange that they go to.';
COMMENT ON COLUMN howdah.binding.routing_key IS 'Key or pattern in dot form.';
COMMENT ON COLUMN howdah.binding.arguments IS 'Arguments of the binding.';
COMMENT ON COLUMN howdah.binding.options IS 'What a subscriber''s protocol asked for, such as granted QoS.';

CREATE TABLE howdah.session (
    id bigint GENERATED ALWAYS AS IDENTITY,
    vhost text NOT NULL,
    client_id text NOT NULL,
    user_name text,
    protocol text NOT NULL,
    expiry_seconds bigint,
    queue_name text,
    state text NOT NULL CONSTRAINT session_state_check CHECK (state IN ('connected', 'disconnected')),
    connected_at timestamptz,
    disconnected_at timestamptz,
    CONSTRAINT session_pkey PRIMARY KEY (id),
    CONSTRAINT session_vhost_client_id_key UNIQUE (vhost, client_id),
    CONSTRAINT session_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.session IS 'Sessions that outlive their connection.';
COMMENT ON COLUMN howdah.session.id IS 'Names the session in packet; never used again.';
COMMENT ON COLUMN howdah.session.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.session.client_id IS 'Client identifier, or container and link name.';
COMMENT ON COLUMN howdah.session.user_name IS 'User that owns the session.';
COMMENT ON COLUMN howdah.session.protocol IS 'Protocol that it was opened with.';
COMMENT ON COLUMN howdah.session.expiry_seconds IS 'How long it outlives its connection; null: forever.';
COMMENT ON COLUMN howdah.session.queue_name IS 'Queue that keeps messages while the client is away.';
COMMENT ON COLUMN howdah.session.state IS 'connected or disconnected.';
COMMENT ON COLUMN howdah.session.connected_at IS 'When it was last connected.';
COMMENT ON COLUMN howdah.session.disconnected_at IS 'When it was last disconnected; expiry counts from it.';

CREATE TABLE howdah.subscription (
    session_id bigint NOT NULL,
    filter text NOT NULL,
    qos smallint NOT NULL,
    no_local boolean NOT NULL,
    retain_as_published boolean NOT NULL,
    retain_handling smallint NOT NULL,
    identifier integer,
    options jsonb,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT subscription_pkey PRIMARY KEY (session_id, filter),
    CONSTRAINT subscription_session_id_fkey FOREIGN KEY(session_id) REFERENCES howdah.session (id) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.subscription IS 'Subscriptions of sessions that outlive their connection.';
COMMENT ON COLUMN howdah.subscription.session_id IS 'Session that subscribed.';
COMMENT ON COLUMN howdah.subscription.filter IS 'Topic filter as subscribed.';
COMMENT ON COLUMN howdah.subscription.qos IS 'Granted QoS.';
COMMENT ON COLUMN howdah.subscription.no_local IS 'Not to the client that published.';
COMMENT ON COLUMN howdah.subscription.retain_as_published IS 'Retain flag is passed on.';
COMMENT ON COLUMN howdah.subscription.retain_handling IS 'When retained messages are sent: 0, 1 or 2.';
COMMENT ON COLUMN howdah.subscription.identifier IS 'Subscription identifier.';
COMMENT ON COLUMN howdah.subscription.options IS 'Everything else the subscriber asked for.';
COMMENT ON COLUMN howdah.subscription.created_at IS 'When it was made.';

CREATE TABLE howdah.will (
    vhost text NOT NULL,
    client_id text NOT NULL,
    delay_seconds bigint NOT NULL,
    due_at timestamptz,
    retain boolean NOT NULL,
    qos smallint NOT NULL,
    lifetime_seconds bigint,
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
    CONSTRAINT will_pkey PRIMARY KEY (vhost, client_id),
    CONSTRAINT will_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.will IS 'Messages to publish when a client is lost.';
COMMENT ON COLUMN howdah.will.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.will.client_id IS 'Client whose will it is.';
COMMENT ON COLUMN howdah.will.delay_seconds IS 'How long after the connection is lost.';
COMMENT ON COLUMN howdah.will.due_at IS 'When to publish it; null while the client is connected.';
COMMENT ON COLUMN howdah.will.retain IS 'Published as a retained message.';
COMMENT ON COLUMN howdah.will.qos IS 'Published with this QoS.';
COMMENT ON COLUMN howdah.will.lifetime_seconds IS 'Expires so long after publishing; null: never.';
COMMENT ON COLUMN howdah.will.expires_at IS 'When it is worth nothing any more; null: never.';
COMMENT ON COLUMN howdah.will.priority IS '0 to 255 as published; null: none given.';
COMMENT ON COLUMN howdah.will.durable IS 'Publisher asked for it to survive a restart.';
COMMENT ON COLUMN howdah.will.exchange IS 'Exchange published to; empty: the default exchange.';
COMMENT ON COLUMN howdah.will.routing_key IS 'Routing key in dot form; the MQTT topic, rewritten.';
COMMENT ON COLUMN howdah.will.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.will.content_encoding IS 'Encoding of the body, such as gzip.';
COMMENT ON COLUMN howdah.will.message_id IS 'Identifier given by the publisher, as text.';
COMMENT ON COLUMN howdah.will.correlation_id IS 'What the message answers or belongs to, as text.';
COMMENT ON COLUMN howdah.will.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.will.subject IS 'Subject (AMQP 1.0) or type (AMQP 0.9.1).';
COMMENT ON COLUMN howdah.will.app_id IS 'Application that published, by its own word.';
COMMENT ON COLUMN howdah.will.user_id IS 'User that published, checked against the login.';
COMMENT ON COLUMN howdah.will.group_id IS 'Group that the message belongs to.';
COMMENT ON COLUMN howdah.will.created_at IS 'When the publisher says it made the message.';
COMMENT ON COLUMN howdah.will.headers IS 'Application headers by name; the first of a repeated name.';
COMMENT ON COLUMN howdah.will.publisher IS 'Who published, stamped by the gateway; cannot be forged.';
COMMENT ON COLUMN howdah.will.form IS 'Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4 AMQP 1.0; see protocol_name().';
COMMENT ON COLUMN howdah.will.native IS 'Properties as the publisher encoded them: a consumer of the same protocol gets them byte for byte.';
COMMENT ON COLUMN howdah.will.body IS 'The payload.';
ALTER TABLE howdah.will ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE howdah.retained (
    vhost text NOT NULL,
    topic text NOT NULL,
    qos smallint NOT NULL,
    retained_at timestamptz NOT NULL,
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
    CONSTRAINT retained_pkey PRIMARY KEY (vhost, topic),
    CONSTRAINT retained_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.retained IS 'Last message of each topic, for those who subscribe later.';
COMMENT ON COLUMN howdah.retained.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.retained.topic IS 'Topic in slash form.';
COMMENT ON COLUMN howdah.retained.qos IS 'QoS that it was published with.';
COMMENT ON COLUMN howdah.retained.retained_at IS 'When it became the topic''s last value.';
COMMENT ON COLUMN howdah.retained.expires_at IS 'When it is worth nothing any more; null: never.';
COMMENT ON COLUMN howdah.retained.priority IS '0 to 255 as published; null: none given.';
COMMENT ON COLUMN howdah.retained.durable IS 'Publisher asked for it to survive a restart.';
COMMENT ON COLUMN howdah.retained.exchange IS 'Exchange published to; empty: the default exchange.';
COMMENT ON COLUMN howdah.retained.routing_key IS 'Routing key in dot form; the MQTT topic, rewritten.';
COMMENT ON COLUMN howdah.retained.content_type IS 'MIME type of the body.';
COMMENT ON COLUMN howdah.retained.content_encoding IS 'Encoding of the body, such as gzip.';
COMMENT ON COLUMN howdah.retained.message_id IS 'Identifier given by the publisher, as text.';
COMMENT ON COLUMN howdah.retained.correlation_id IS 'What the message answers or belongs to, as text.';
COMMENT ON COLUMN howdah.retained.reply_to IS 'Where to send the answer.';
COMMENT ON COLUMN howdah.retained.subject IS 'Subject (AMQP 1.0) or type (AMQP 0.9.1).';
COMMENT ON COLUMN howdah.retained.app_id IS 'Application that published, by its own word.';
COMMENT ON COLUMN howdah.retained.user_id IS 'User that published, checked against the login.';
COMMENT ON COLUMN howdah.retained.group_id IS 'Group that the message belongs to.';
COMMENT ON COLUMN howdah.retained.created_at IS 'When the publisher says it made the message.';
COMMENT ON COLUMN howdah.retained.headers IS 'Application headers by name; the first of a repeated name.';
COMMENT ON COLUMN howdah.retained.publisher IS 'Who published, stamped by the gateway; cannot be forged.';
COMMENT ON COLUMN howdah.retained.form IS 'Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4 AMQP 1.0; see protocol_name().';
COMMENT ON COLUMN howdah.retained.native IS 'Properties as the publisher encoded them: a consumer of the same protocol gets them byte for byte.';
COMMENT ON COLUMN howdah.retained.body IS 'The payload.';
ALTER TABLE howdah.retained ALTER COLUMN body SET STORAGE EXTERNAL;

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
ALTER TABLE howdah.message ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE howdah.message_body (
    segment_id integer NOT NULL,
    id bigint NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT message_body_pkey PRIMARY KEY (id, segment_id)
) PARTITION BY LIST (segment_id);
COMMENT ON TABLE howdah.message_body IS 'Large bodies routed to several queues, once a segment.';
COMMENT ON COLUMN howdah.message_body.segment_id IS 'Segment that it lies in; partition key.';
COMMENT ON COLUMN howdah.message_body.id IS 'What message.body_id refers to.';
COMMENT ON COLUMN howdah.message_body.body IS 'The payload.';
ALTER TABLE howdah.message_body ALTER COLUMN body SET STORAGE EXTERNAL;

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
    CONSTRAINT redelivery_pkey PRIMARY KEY (queue_id, "offset", count, generation)
) PARTITION BY LIST (generation);
COMMENT ON TABLE howdah.redelivery IS 'Deliveries that failed.';
COMMENT ON COLUMN howdah.redelivery.generation IS 'Generation; partition key. Only gateway''s own counts.';
COMMENT ON COLUMN howdah.redelivery.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.redelivery."offset" IS 'Message whose delivery failed.';
COMMENT ON COLUMN howdah.redelivery.count IS 'How often it failed; the highest row counts.';
COMMENT ON COLUMN howdah.redelivery.not_before IS 'Not delivered again before; null: at once.';
COMMENT ON COLUMN howdah.redelivery.reason IS 'Why the delivery failed.';
COMMENT ON COLUMN howdah.redelivery.written_at IS 'When the row was written.';

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
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
);
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
ALTER TABLE howdah.outbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE howdah.outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

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
COMMENT ON COLUMN howdah.command.kind IS 'purge, redrive, delete_queue or declare_queue.';
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
COMMENT ON TABLE howdah.queue_activity IS 'What only the gateway''s memory knows of a queue, noted every few seconds.';
COMMENT ON COLUMN howdah.queue_activity.queue_id IS 'Queue.';
COMMENT ON COLUMN howdah.queue_activity.in_flight IS 'Delivered, not settled yet.';
COMMENT ON COLUMN howdah.queue_activity.consumers IS 'Consumers attached.';
COMMENT ON COLUMN howdah.queue_activity.noted_at IS 'When the gateway noted this.';
ALTER TABLE howdah.queue_activity SET (fillfactor = 50);

COMMENT ON TABLE howdah.alembic_version IS 'Which migration this schema is at.';
COMMENT ON COLUMN howdah.alembic_version.version_num IS 'Revision; see howdah migrate.';
