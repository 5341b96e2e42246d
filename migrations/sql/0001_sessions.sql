-- Tables of what MQTT keeps beyond a connection: sessions, subscriptions, wills, retained messages.

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
    user_name text,
    is_built_in boolean,
    CONSTRAINT will_pkey PRIMARY KEY (vhost, client_id),
    CONSTRAINT will_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
ALTER TABLE howdah.will ALTER COLUMN body SET STORAGE EXTERNAL;
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
COMMENT ON COLUMN howdah.will.user_name IS 'User whose will it is; null: nobody''s, it is dropped.';
COMMENT ON COLUMN howdah.will.is_built_in IS 'User is guest or anonymous by the configuration.';

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
ALTER TABLE howdah.retained ALTER COLUMN body SET STORAGE EXTERNAL;
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
