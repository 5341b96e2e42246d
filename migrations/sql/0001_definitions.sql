-- Tables of what people and clients define: who may do what, and what there is to publish to and
-- consume from; and who owns the database.

CREATE TABLE howdah.gateway (
    id integer NOT NULL CONSTRAINT gateway_only_row_check CHECK (id = 1),
    epoch bigint NOT NULL,
    node text,
    generation integer NOT NULL,
    started_at timestamptz,
    max_message_size bigint,
    lineage uuid,
    CONSTRAINT gateway_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE howdah.gateway IS 'The gateway that owns this database: one row.';
COMMENT ON COLUMN howdah.gateway.id IS 'Always 1.';
COMMENT ON COLUMN howdah.gateway.epoch IS 'Counts the gateways that have owned this database.';
COMMENT ON COLUMN howdah.gateway.node IS 'Name of the gateway that owns it now, or did last.';
COMMENT ON COLUMN howdah.gateway.generation IS 'Generation of the journal tables that counts.';
COMMENT ON COLUMN howdah.gateway.started_at IS 'When the owner took over.';
COMMENT ON COLUMN howdah.gateway.max_message_size IS 'Largest message in bytes that the owner takes; null: no gateway has said so yet.';
COMMENT ON COLUMN howdah.gateway.lineage IS
    'Names this database and its copies, whatever their server; null: no gateway has owned it yet.';

CREATE TABLE howdah.ownership (
    epoch bigint NOT NULL,
    started_at timestamptz NOT NULL,
    node text NOT NULL,
    server text NOT NULL,
    database bigint NOT NULL,
    timeline bigint NOT NULL,
    last_commit bigint NOT NULL,
    messages bigint NOT NULL,
    last_commit_at timestamptz,
    CONSTRAINT ownership_pkey PRIMARY KEY (epoch)
);
COMMENT ON TABLE howdah.ownership IS
    'The gateways that have owned this database, the newest thousand: who, when, on which server and '
    'timeline, and how far the commits of those before had come.';
COMMENT ON COLUMN howdah.ownership.epoch IS 'Counts the gateways that have owned this database.';
COMMENT ON COLUMN howdah.ownership.started_at IS 'When it took over.';
COMMENT ON COLUMN howdah.ownership.node IS 'Name of the gateway.';
COMMENT ON COLUMN howdah.ownership.server IS 'System identifier of the PostgreSQL cluster; empty: unknown.';
COMMENT ON COLUMN howdah.ownership.database IS 'OID of the database there.';
COMMENT ON COLUMN howdah.ownership.timeline IS
    'Timeline of the cluster, which grows with each failover; 0: unknown.';
COMMENT ON COLUMN howdah.ownership.last_commit IS 'Number of the newest commit that it found.';
COMMENT ON COLUMN howdah.ownership.messages IS 'Offsets that all commits up to that one had given.';
COMMENT ON COLUMN howdah.ownership.last_commit_at IS 'When that commit was made; null: there was none.';

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
    scram_verifier text,
    CONSTRAINT user_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah."user" IS 'Who may log in to the gateway. Not a PostgreSQL role.';
COMMENT ON COLUMN howdah."user".name IS 'Login name.';
COMMENT ON COLUMN howdah."user".password_hash IS 'Argon2 hash; null: no login by password.';
COMMENT ON COLUMN howdah."user".tags IS 'What it may do beside its permissions: impersonator, to publish in another user''s name. Others are kept, and mean nothing.';
COMMENT ON COLUMN howdah."user".created_at IS 'When it was made.';
COMMENT ON COLUMN howdah."user".changed_at IS 'When it was last changed.';
COMMENT ON COLUMN howdah."user".scram_verifier IS 'SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey; null: no login by SCRAM.';

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

CREATE TABLE howdah.secret (
    name text NOT NULL,
    value bytea NOT NULL,
    CONSTRAINT secret_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah.secret IS 'Random bytes that stay the same for as long as the database lives.';
COMMENT ON COLUMN howdah.secret.name IS 'What it is for.';
COMMENT ON COLUMN howdah.secret.value IS 'To be known to the gateway only.';

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
COMMENT ON COLUMN howdah.exchange.kind IS 'How it routes: direct, topic, fanout, headers, or an x- type such as x-delayed-message.';
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

CREATE TABLE howdah.view_key (
    value uuid NOT NULL,
    CONSTRAINT view_key_pkey PRIMARY KEY (value)
);
COMMENT ON TABLE howdah.view_key IS 'Opens the functions that the views call. One row.';
COMMENT ON COLUMN howdah.view_key.value IS 'To be known to the views only: grant this table to nobody.';

COMMENT ON TABLE howdah.alembic_version IS 'Which migration this schema is at.';
COMMENT ON COLUMN howdah.alembic_version.version_num IS 'Revision; see howdah migrate.';
