-- The schema of a new database, for reading: tables, views, functions, triggers, roles and grants.
-- Written by `make docs` from a migrated database; the sources are in migrations/sql. To install
-- it, run `howdah migrate`, or `howdah migrate --sql` for a script (docs/dba.md tells how): this
-- page is in the order of reading, and psql stops at views whose functions come after them.
--
-- A table that is partitioned has its partitions made while the gateway runs: segments of message
-- and message_body, generations of the journal tables. They are not here. Comments stand in the
-- catalog as well: \d+ in psql shows them.

-- ---------------------------------------------------------------------------------------------- tables

-- Howdah: queues of the MQTT and AMQP gateway.
CREATE SCHEMA howdah;

-- Which migration this schema is at.
CREATE TABLE howdah.alembic_version (
    version_num character varying(32) NOT NULL,  -- Revision; see howdah migrate.
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

-- The gateway that owns this database: one row.
CREATE TABLE howdah.gateway (
    id               integer NOT NULL,  -- Always 1.
    epoch            bigint NOT NULL,   -- Counts the gateways that have owned this database.
    node             text,              -- Name of the gateway that owns it now, or did last.
    started_at       timestamptz,       -- When the owner took over.
    max_message_size bigint,            -- Largest message in bytes that the owner takes; null: no gateway has said so
                                        -- yet.
    lineage          uuid,              -- Names this database and its copies, whatever their server; null: no gateway
                                        -- has owned it yet.
    CONSTRAINT gateway_pkey PRIMARY KEY (id),
    CONSTRAINT gateway_only_row_check CHECK ((id = 1))
);

-- The gateways that have owned this database, the newest thousand: who, when, on which server and
-- timeline, and how far the commits of those before had come.
CREATE TABLE howdah.ownership (
    epoch          bigint NOT NULL,       -- Counts the gateways that have owned this database.
    started_at     timestamptz NOT NULL,  -- When it took over.
    node           text NOT NULL,         -- Name of the gateway.
    server         text NOT NULL,         -- System identifier of the PostgreSQL cluster; empty: unknown.
    database       bigint NOT NULL,       -- OID of the database there.
    timeline       bigint NOT NULL,       -- Timeline of the cluster, which grows with each failover; 0: unknown.
    last_commit    bigint NOT NULL,       -- Number of the newest commit that it found.
    messages       bigint NOT NULL,       -- Offsets that all commits up to that one had given.
    last_commit_at timestamptz,           -- When that commit was made; null: there was none.
    CONSTRAINT ownership_pkey PRIMARY KEY (epoch)
);

-- Virtual hosts: names of exchanges and queues in one do not meet those of another.
CREATE TABLE howdah.vhost (
    name               text NOT NULL,                       -- Name, such as /.
    created_at         timestamptz DEFAULT now() NOT NULL,  -- When it was made.
    description        text DEFAULT '' NOT NULL,            -- What it is for, in people's words.
    tags               text[] DEFAULT '{}' NOT NULL,        -- Words to find it by.
    default_queue_type text,                                -- Type of durable queues that are declared without one:
                                                            -- classic, quorum or stream; null: classic.
    metadata           jsonb DEFAULT '{}' NOT NULL,         -- Anything else that tools keep with it.
    max_connections    integer,                             -- Connections that it may have; null or negative: any
                                                            -- number.
    max_queues         integer,                             -- Queues that it may have; null or negative: any number.
    CONSTRAINT vhost_pkey PRIMARY KEY (name),
    CONSTRAINT vhost_default_queue_type_check CHECK ((default_queue_type = ANY (ARRAY['classic'::text, 'quorum'::text, 'stream'::text])))
);

-- Who may log in to the gateway. Not a PostgreSQL role.
CREATE TABLE howdah."user" (
    name            text NOT NULL,                       -- Login name.
    password_hash   text,                                -- Argon2 hash, or until the first login one from RabbitMQ
                                                         -- (rabbit_sha256$...); null: no login by password.
    tags            text[] DEFAULT '{}' NOT NULL,        -- What it may do beside its permissions: impersonator, to
                                                         -- publish in another user's name. Others are kept, and mean
                                                         -- nothing.
    created_at      timestamptz DEFAULT now() NOT NULL,  -- When it was made.
    changed_at      timestamptz DEFAULT now() NOT NULL,  -- When it was last changed.
    scram_verifier  text,                                -- SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey; null: no
                                                         -- login by SCRAM.
    max_connections integer,                             -- Connections that it may have; null or negative: any number.
    max_channels    integer,                             -- Channels and sessions that it may have in all its
                                                         -- connections; null or negative: any number.
    CONSTRAINT user_pkey PRIMARY KEY (name)
);

-- What a user may do in a virtual host, by names of exchanges and queues.
CREATE TABLE howdah.permission (
    user_name text NOT NULL,  -- User that is allowed.
    vhost     text NOT NULL,  -- Virtual host that it belongs to.
    configure text NOT NULL,  -- Regular expression of what it may declare and delete.
    write     text NOT NULL,  -- Regular expression of what it may publish to.
    read      text NOT NULL,  -- Regular expression of what it may consume from.
    CONSTRAINT permission_pkey PRIMARY KEY (user_name, vhost),
    CONSTRAINT permission_user_name_fkey FOREIGN KEY (user_name) REFERENCES howdah."user"(name) ON DELETE CASCADE,
    CONSTRAINT permission_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- What a user may do on a topic exchange, by routing key.
CREATE TABLE howdah.topic_permission (
    user_name text NOT NULL,  -- User that is allowed.
    vhost     text NOT NULL,  -- Virtual host that it belongs to.
    exchange  text NOT NULL,  -- Topic exchange that the rule is for.
    write     text NOT NULL,  -- Regular expression of routing keys it may publish with.
    read      text NOT NULL,  -- Regular expression of routing keys it may bind with.
    CONSTRAINT topic_permission_pkey PRIMARY KEY (user_name, vhost, exchange),
    CONSTRAINT topic_permission_user_name_fkey FOREIGN KEY (user_name) REFERENCES howdah."user"(name) ON DELETE CASCADE,
    CONSTRAINT topic_permission_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Random bytes that stay the same for as long as the database lives.
CREATE TABLE howdah.secret (
    name  text NOT NULL,   -- What it is for.
    value bytea NOT NULL,  -- To be known to the gateway only.
    CONSTRAINT secret_pkey PRIMARY KEY (name)
);

-- Durable exchanges.
CREATE TABLE howdah.exchange (
    vhost       text NOT NULL,                       -- Virtual host that it belongs to.
    name        text NOT NULL,                       -- Name; the amq.* exchanges need no row.
    kind        text NOT NULL,                       -- How it routes: direct, topic, fanout, headers, or an x- type
                                                     -- such as x-delayed-message.
    auto_delete boolean NOT NULL,                    -- Goes with its last binding.
    internal    boolean NOT NULL,                    -- Takes messages from other exchanges only.
    arguments   jsonb DEFAULT '{}' NOT NULL,         -- Arguments as declared, word for word.
    created_at  timestamptz DEFAULT now() NOT NULL,  -- When it was declared.
    CONSTRAINT exchange_pkey PRIMARY KEY (vhost, name),
    CONSTRAINT exchange_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Durable queues.
CREATE TABLE howdah.queue (
    id         bigint GENERATED ALWAYS AS IDENTITY,  -- Names the queue in the log and the journal; never used again.
    vhost      text NOT NULL,                        -- Virtual host that it belongs to.
    name       text NOT NULL,                        -- Name.
    kind       text NOT NULL,                        -- classic: each message to one consumer; stream: a log that many
                                                     -- read.
    arguments  jsonb DEFAULT '{}' NOT NULL,          -- Arguments as declared, word for word.
    created_by text,                                 -- User that declared it.
    created_at timestamptz DEFAULT now() NOT NULL,   -- When it was declared.
    paused_at  timestamptz,                          -- Since when nothing is delivered from it; null: it is not paused.
    shard      smallint NOT NULL,                    -- Shard that it belongs to, with its messages and its journal.
    CONSTRAINT queue_pkey PRIMARY KEY (id),
    CONSTRAINT queue_vhost_name_key UNIQUE (vhost, name),
    CONSTRAINT queue_kind_check CHECK ((kind = ANY (ARRAY['classic'::text, 'stream'::text]))),
    CONSTRAINT queue_shard_check CHECK (((shard >= 0) AND (shard <= 63))),
    CONSTRAINT queue_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Which exchanges feed which queues and exchanges.
CREATE TABLE howdah.binding (
    id               bigint GENERATED ALWAYS AS IDENTITY,  -- Row number.
    vhost            text NOT NULL,                        -- Virtual host that it belongs to.
    source           text NOT NULL,                        -- Exchange that messages come from.
    destination_kind text NOT NULL,                        -- queue or exchange.
    destination      text NOT NULL,                        -- Queue or exchange that they go to.
    routing_key      text NOT NULL,                        -- Key or pattern in dot form.
    arguments        jsonb DEFAULT '{}' NOT NULL,          -- Arguments of the binding.
    options          jsonb,                                -- What a subscriber's protocol asked for, such as granted
                                                           -- QoS.
    CONSTRAINT binding_pkey PRIMARY KEY (id),
    CONSTRAINT binding_destination_kind_check CHECK ((destination_kind = ANY (ARRAY['queue'::text, 'exchange'::text]))),
    CONSTRAINT binding_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);
CREATE INDEX binding_destination_idx ON howdah.binding USING btree (vhost, destination_kind, destination);
CREATE UNIQUE INDEX binding_key ON howdah.binding
    USING btree (vhost, source, destination_kind, destination, md5(routing_key), md5((arguments)::text));

-- Opens the functions that the views call. One row.
CREATE TABLE howdah.view_key (
    value uuid NOT NULL,  -- To be known to the views only: grant this table to nobody.
    CONSTRAINT view_key_pkey PRIMARY KEY (value)
);

-- Sessions that outlive their connection.
CREATE TABLE howdah.session (
    id              bigint GENERATED ALWAYS AS IDENTITY,  -- Names the session in packet; never used again.
    vhost           text NOT NULL,                        -- Virtual host that it belongs to.
    client_id       text NOT NULL,                        -- Client identifier, or container and link name.
    user_name       text,                                 -- User that owns the session.
    protocol        text NOT NULL,                        -- Protocol that it was opened with.
    expiry_seconds  bigint,                               -- How long it outlives its connection; null: forever.
    queue_name      text,                                 -- Queue that keeps messages while the client is away.
    state           text NOT NULL,                        -- connected or disconnected.
    connected_at    timestamptz,                          -- When it was last connected.
    disconnected_at timestamptz,                          -- When it was last disconnected; expiry counts from it.
    shard           smallint NOT NULL,                    -- Shard that it belongs to, as its queue and its will.
    CONSTRAINT session_pkey PRIMARY KEY (id),
    CONSTRAINT session_vhost_client_id_key UNIQUE (vhost, client_id),
    CONSTRAINT session_shard_check CHECK (((shard >= 0) AND (shard <= 63))),
    CONSTRAINT session_state_check CHECK ((state = ANY (ARRAY['connected'::text, 'disconnected'::text]))),
    CONSTRAINT session_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Subscriptions of sessions that outlive their connection.
CREATE TABLE howdah.subscription (
    session_id          bigint NOT NULL,                     -- Session that subscribed.
    filter              text NOT NULL,                       -- Topic filter as subscribed.
    qos                 smallint NOT NULL,                   -- Granted QoS.
    no_local            boolean NOT NULL,                    -- Not to the client that published.
    retain_as_published boolean NOT NULL,                    -- Retain flag is passed on.
    retain_handling     smallint NOT NULL,                   -- When retained messages are sent: 0, 1 or 2.
    identifier          integer,                             -- Subscription identifier.
    options             jsonb,                               -- Everything else the subscriber asked for.
    created_at          timestamptz DEFAULT now() NOT NULL,  -- When it was made.
    CONSTRAINT subscription_pkey PRIMARY KEY (session_id, filter),
    CONSTRAINT subscription_session_id_fkey FOREIGN KEY (session_id) REFERENCES howdah.session(id) ON DELETE CASCADE
);

-- Messages to publish when a client is lost.
CREATE TABLE howdah.will (
    vhost            text NOT NULL,                -- Virtual host that it belongs to.
    client_id        text NOT NULL,                -- Client whose will it is.
    delay_seconds    bigint NOT NULL,              -- How long after the connection is lost.
    due_at           timestamptz,                  -- When to publish it; null while the client is connected.
    retain           boolean NOT NULL,             -- Published as a retained message.
    qos              smallint NOT NULL,            -- Published with this QoS.
    lifetime_seconds bigint,                       -- Expires so long after publishing; null: never.
    expires_at       timestamptz,                  -- When it is worth nothing any more; null: never.
    priority         smallint,                     -- 0 to 255 as published; null: none given.
    durable          boolean NOT NULL,             -- Publisher asked for it to survive a restart.
    exchange         text NOT NULL,                -- Exchange published to; empty: the default exchange.
    routing_key      text NOT NULL,                -- Routing key in dot form; the MQTT topic, rewritten.
    content_type     text,                         -- MIME type of the body.
    content_encoding text,                         -- Encoding of the body, such as gzip.
    message_id       text,                         -- Identifier given by the publisher, as text.
    correlation_id   text,                         -- What the message answers or belongs to, as text.
    reply_to         text,                         -- Where to send the answer.
    subject          text,                         -- Subject (AMQP 1.0) or type (AMQP 0.9.1).
    app_id           text,                         -- Application that published, by its own word.
    user_id          text,                         -- User that published, checked against the login.
    group_id         text,                         -- Group that the message belongs to.
    created_at       timestamptz,                  -- When the publisher says it made the message.
    headers          jsonb,                        -- Application headers by name; the first of a repeated name.
    publisher        text,                         -- Who published, stamped by the gateway; cannot be forged.
    form             smallint DEFAULT 0 NOT NULL,  -- Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4
                                                   -- AMQP 1.0; see protocol_name().
    native           bytea,                        -- Properties as the publisher encoded them: a consumer of the same
                                                   -- protocol gets them byte for byte.
    body             bytea,                        -- The payload.
    user_name        text,                         -- User whose will it is; null: nobody's, it is dropped.
    is_built_in      boolean,                      -- User is guest or anonymous by the configuration.
    shard            smallint NOT NULL,            -- Shard that it belongs to, as the session of its client.
    CONSTRAINT will_pkey PRIMARY KEY (vhost, client_id),
    CONSTRAINT will_shard_check CHECK (((shard >= 0) AND (shard <= 63))),
    CONSTRAINT will_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);
ALTER TABLE howdah.will ALTER COLUMN body SET STORAGE EXTERNAL;

-- Last message of each topic, for those who subscribe later.
CREATE TABLE howdah.retained (
    vhost            text NOT NULL,                -- Virtual host that it belongs to.
    topic            text NOT NULL,                -- Topic in slash form.
    qos              smallint NOT NULL,            -- QoS that it was published with.
    retained_at      timestamptz NOT NULL,         -- When it became the topic's last value.
    expires_at       timestamptz,                  -- When it is worth nothing any more; null: never.
    priority         smallint,                     -- 0 to 255 as published; null: none given.
    durable          boolean NOT NULL,             -- Publisher asked for it to survive a restart.
    exchange         text NOT NULL,                -- Exchange published to; empty: the default exchange.
    routing_key      text NOT NULL,                -- Routing key in dot form; the MQTT topic, rewritten.
    content_type     text,                         -- MIME type of the body.
    content_encoding text,                         -- Encoding of the body, such as gzip.
    message_id       text,                         -- Identifier given by the publisher, as text.
    correlation_id   text,                         -- What the message answers or belongs to, as text.
    reply_to         text,                         -- Where to send the answer.
    subject          text,                         -- Subject (AMQP 1.0) or type (AMQP 0.9.1).
    app_id           text,                         -- Application that published, by its own word.
    user_id          text,                         -- User that published, checked against the login.
    group_id         text,                         -- Group that the message belongs to.
    created_at       timestamptz,                  -- When the publisher says it made the message.
    headers          jsonb,                        -- Application headers by name; the first of a repeated name.
    publisher        text,                         -- Who published, stamped by the gateway; cannot be forged.
    form             smallint DEFAULT 0 NOT NULL,  -- Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4
                                                   -- AMQP 1.0; see protocol_name().
    native           bytea,                        -- Properties as the publisher encoded them: a consumer of the same
                                                   -- protocol gets them byte for byte.
    body             bytea,                        -- The payload.
    shard            smallint NOT NULL,            -- Shard that it belongs to.
    CONSTRAINT retained_pkey PRIMARY KEY (vhost, topic),
    CONSTRAINT retained_shard_check CHECK (((shard >= 0) AND (shard <= 63))),
    CONSTRAINT retained_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);
ALTER TABLE howdah.retained ALTER COLUMN body SET STORAGE EXTERNAL;

-- Segments of the log: one partition of message and one of message_body each.
CREATE TABLE howdah.segment (
    id         integer GENERATED ALWAYS AS IDENTITY,  -- Number of the partitions message_<id> and message_body_<id>.
    queue_id   bigint,                                -- Stream that owns it; null: shared by all classic queues.
    created_at timestamptz DEFAULT now() NOT NULL,    -- When it was opened.
    sealed_at  timestamptz,                           -- When it was closed for writing; null: still open.
    messages   bigint DEFAULT 0 NOT NULL,             -- Rows in it, known when sealed.
    bytes      bigint DEFAULT 0 NOT NULL,             -- Bytes in it, known when sealed.
    newest_at  timestamptz,                           -- Time of its newest message, known when sealed.
    retired_at timestamptz,                           -- Since when nobody needs it, while a reader keeps it from being
                                                      -- dropped; null: needed, or dropped at once.
    archive    text,                                  -- Where a copy was archived; null: nowhere.
    node_id    integer,                               -- Node that writes it, or did last; null: a gateway of a release
                                                      -- before.
    needed_by  smallint[],                            -- Shards that may have messages in it; null: it is open, and
                                                      -- shared by those of its node.
    CONSTRAINT segment_pkey PRIMARY KEY (id)
);

-- The log: every message in every durable queue. Inserted, never updated; segments are dropped whole.
-- What is settled says settlement; see ready_messages.
CREATE TABLE howdah.message (
    segment_id       integer NOT NULL,             -- Segment that it lies in; partition key.
    queue_id         bigint NOT NULL,              -- Queue that it is in.
    "offset"         bigint NOT NULL,              -- Place in the queue: without gaps, in order of commit.
    enqueued_at      timestamptz NOT NULL,         -- When it entered this queue.
    not_before       timestamptz,                  -- Not delivered before; null: at once.
    deaths           jsonb,                        -- Where it was dead-lettered, newest first: queue, reason, count,
                                                   -- time (Unix seconds), exchange, routing_keys.
    delivery         jsonb,                        -- What the subscriber's protocol needs for this copy.
    body_id          bigint,                       -- The body is in message_body; null: it is here.
    expires_at       timestamptz,                  -- When it is worth nothing any more; null: never.
    priority         smallint,                     -- 0 to 255 as published; null: none given.
    durable          boolean NOT NULL,             -- Publisher asked for it to survive a restart.
    exchange         text NOT NULL,                -- Exchange published to; empty: the default exchange.
    routing_key      text NOT NULL,                -- Routing key in dot form; the MQTT topic, rewritten.
    content_type     text,                         -- MIME type of the body.
    content_encoding text,                         -- Encoding of the body, such as gzip.
    message_id       text,                         -- Identifier given by the publisher, as text.
    correlation_id   text,                         -- What the message answers or belongs to, as text.
    reply_to         text,                         -- Where to send the answer.
    subject          text,                         -- Subject (AMQP 1.0) or type (AMQP 0.9.1).
    app_id           text,                         -- Application that published, by its own word.
    user_id          text,                         -- User that published, checked against the login.
    group_id         text,                         -- Group that the message belongs to.
    created_at       timestamptz,                  -- When the publisher says it made the message.
    headers          jsonb,                        -- Application headers by name; the first of a repeated name.
    publisher        text,                         -- Who published, stamped by the gateway; cannot be forged.
    form             smallint DEFAULT 0 NOT NULL,  -- Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4
                                                   -- AMQP 1.0; see protocol_name().
    native           bytea,                        -- Properties as the publisher encoded them: a consumer of the same
                                                   -- protocol gets them byte for byte.
    body             bytea,                        -- The payload.
    CONSTRAINT message_pkey PRIMARY KEY (queue_id, "offset", segment_id)
) PARTITION BY LIST (segment_id);
CREATE INDEX message_delayed_idx ON howdah.message USING btree (queue_id, not_before) WHERE (not_before IS NOT NULL);
ALTER TABLE howdah.message ALTER COLUMN body SET STORAGE EXTERNAL;

-- Large bodies routed to several queues, once a segment.
CREATE TABLE howdah.message_body (
    segment_id integer NOT NULL,  -- Segment that it lies in; partition key.
    id         bigint NOT NULL,   -- What message.body_id refers to.
    body       bytea NOT NULL,    -- The payload.
    CONSTRAINT message_body_pkey PRIMARY KEY (id, segment_id)
) PARTITION BY LIST (segment_id);
ALTER TABLE howdah.message_body ALTER COLUMN body SET STORAGE EXTERNAL;

-- What is settled, one row per group and flush. State of a group: from its newest full row on, the
-- highest floor and the union of acked; see settlement_state.
CREATE TABLE howdah.settlement (
    generation integer NOT NULL,                      -- Generation; partition key. Only that of the queue's shard
                                                      -- counts.
    seq        bigint NOT NULL,                       -- Order of the rows, numbered by the gateway.
    queue_id   bigint NOT NULL,                       -- Queue.
    group_name text NOT NULL,                         -- Consumer group of a stream; empty for a classic queue.
    floor      bigint NOT NULL,                       -- All offsets below are settled.
    acked      int8multirange DEFAULT '{}' NOT NULL,  -- Offsets settled above the floor, since the row before or, if
                                                      -- is_full, in all.
    is_full    boolean NOT NULL,                      -- Rows before this one do not count any more.
    handed_out bigint DEFAULT 0 NOT NULL,             -- Offsets below may have been delivered; after a crash they are
                                                      -- flagged as redelivered.
    written_at timestamptz DEFAULT now() NOT NULL,    -- When the row was written.
    CONSTRAINT settlement_pkey PRIMARY KEY (queue_id, group_name, seq, generation)
) PARTITION BY LIST (generation);

-- Deliveries that failed.
CREATE TABLE howdah.redelivery (
    generation integer NOT NULL,                    -- Generation; partition key. Only that of the queue's shard counts.
    queue_id   bigint NOT NULL,                     -- Queue.
    "offset"   bigint NOT NULL,                     -- Message whose delivery failed.
    count      integer NOT NULL,                    -- How often it failed; the highest row counts.
    not_before timestamptz,                         -- Not delivered again before; null: at once.
    reason     text,                                -- Why the delivery failed.
    written_at timestamptz DEFAULT now() NOT NULL,  -- When the row was written.
    amended    integer DEFAULT 0 NOT NULL,          -- Tells rows of the same count apart: one more each time a consumer
                                                    -- adds something to the message, or releases it for a later time.
    amendment  bytea,                               -- All that consumers added to the message; null: nothing. The row
                                                    -- with the highest amended counts.
    CONSTRAINT redelivery_pkey PRIMARY KEY (queue_id, "offset", count, amended, generation)
) PARTITION BY LIST (generation);
CREATE INDEX redelivery_delayed_idx ON howdah.redelivery
    USING btree (queue_id, not_before)
    WHERE (not_before IS NOT NULL);

-- Message identifiers that a queue has seen within its window.
CREATE TABLE howdah.deduplication (
    generation integer NOT NULL,      -- Generation; partition key. Only that of the queue's shard counts.
    queue_id   bigint NOT NULL,       -- Queue.
    message_id text NOT NULL,         -- Message identifier that was taken.
    seen_at    timestamptz NOT NULL,  -- When it was taken.
    CONSTRAINT deduplication_pkey PRIMARY KEY (queue_id, message_id, seen_at, generation)
) PARTITION BY LIST (generation);

-- MQTT packet identifiers in flight, so that QoS 2 survives a restart.
CREATE TABLE howdah.packet (
    generation integer NOT NULL,                    -- Generation; partition key. Only that of the session's shard
                                                    -- counts.
    seq        bigint NOT NULL,                     -- Order of the rows, numbered by the gateway.
    session_id bigint NOT NULL,                     -- Session.
    direction  smallint NOT NULL,                   -- 0: from the client, 1: to the client.
    packet_id  integer NOT NULL,                    -- MQTT packet identifier.
    state      smallint NOT NULL,                   -- Where the exchange stands; the newest row counts.
    queue_id   bigint,                              -- Queue of the message in flight.
    "offset"   bigint,                              -- Offset of the message in flight.
    written_at timestamptz DEFAULT now() NOT NULL,  -- When the row was written.
    CONSTRAINT packet_pkey PRIMARY KEY (session_id, direction, packet_id, seq, generation)
) PARTITION BY LIST (generation);

-- One row for each commit of a gateway, of the newest two generations: a commit whose row is missing
-- was lost. Has no index: it is written at each commit, and read after a reconnect.
CREATE TABLE howdah.commit_mark (
    generation   integer NOT NULL,                   -- Generation of the journal; partition key.
    number       bigint NOT NULL,                    -- Number of the commit, given by the gateway.
    messages     bigint NOT NULL,                    -- Offsets that were given to messages by all commits up to this
                                                     -- one, of all queues together.
    committed_at timestamptz DEFAULT now() NOT NULL  -- When the transaction began.
) PARTITION BY LIST (generation);

-- How far the offsets of each queue had come, beside the partitions that hold its messages: it
-- survives them.
CREATE TABLE howdah.log_end (
    queue_id bigint NOT NULL,                     -- Queue.
    noted    bigint NOT NULL,                     -- Offsets below were given to messages, for certain.
    reserved bigint NOT NULL,                     -- Offsets from here on were given to none.
    noted_at timestamptz DEFAULT now() NOT NULL,  -- When it was written.
    CONSTRAINT log_end_pkey PRIMARY KEY (queue_id)
);

-- What was confirmed and is not in the tables any more: after a failover to a standby that was behind,
-- a restore, or a partition that somebody dropped. Its offsets are not given again.
CREATE TABLE howdah.loss (
    id           bigint GENERATED ALWAYS AS IDENTITY,  -- Row number.
    noted_at     timestamptz DEFAULT now() NOT NULL,   -- When it was noticed.
    cause        text NOT NULL,                        -- setback: the database went back in time; unproven: it may
                                                       -- have, and nobody can tell; torn: a table was taken away;
                                                       -- repair: found by repair().
    vhost        text,                                 -- Virtual host; null: it concerns no queue.
    queue        text,                                 -- Name of the queue; null: it concerns no queue.
    queue_id     bigint,                               -- Queue; null: it concerns no queue.
    first_offset bigint,                               -- First offset that has no message; null: no offsets.
    end_offset   bigint,                               -- First offset behind it that may have one again.
    detail       text NOT NULL,                        -- What was lost, or cannot be proven not to be, for people.
    CONSTRAINT loss_pkey PRIMARY KEY (id)
);
CREATE INDEX loss_queue_idx ON howdah.loss USING btree (queue_id) WHERE (queue_id IS NOT NULL);

-- Messages published from SQL; the gateway takes committed rows away, exactly once.
CREATE TABLE howdah.outbox (
    id               bigint GENERATED ALWAYS AS IDENTITY,  -- What publish() returned.
    vhost            text NOT NULL,                        -- Virtual host to publish in.
    not_before       timestamptz,                          -- Not delivered before; null: at once.
    retain           boolean DEFAULT false NOT NULL,       -- Becomes the last value of its topic as well.
    requested_by     text NOT NULL,                        -- Login that called publish().
    inserted_at      timestamptz DEFAULT now() NOT NULL,   -- When it was inserted.
    expires_at       timestamptz,                          -- When it is worth nothing any more; null: never.
    priority         smallint,                             -- 0 to 255 as published; null: none given.
    durable          boolean NOT NULL,                     -- Publisher asked for it to survive a restart.
    exchange         text NOT NULL,                        -- Exchange published to; empty: the default exchange.
    routing_key      text NOT NULL,                        -- Routing key in dot form; the MQTT topic, rewritten.
    content_type     text,                                 -- MIME type of the body.
    content_encoding text,                                 -- Encoding of the body, such as gzip.
    message_id       text,                                 -- Identifier given by the publisher, as text.
    correlation_id   text,                                 -- What the message answers or belongs to, as text.
    reply_to         text,                                 -- Where to send the answer.
    subject          text,                                 -- Subject (AMQP 1.0) or type (AMQP 0.9.1).
    app_id           text,                                 -- Application that published, by its own word.
    user_id          text,                                 -- User that published, checked against the login.
    group_id         text,                                 -- Group that the message belongs to.
    created_at       timestamptz,                          -- When the publisher says it made the message.
    headers          jsonb,                                -- Application headers by name; the first of a repeated name.
    publisher        text,                                 -- Who published, stamped by the gateway; cannot be forged.
    form             smallint DEFAULT 0 NOT NULL,          -- Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP
                                                           -- 0.9.1, 4 AMQP 1.0; see protocol_name().
    native           bytea,                                -- Properties as the publisher encoded them: a consumer of
                                                           -- the same protocol gets them byte for byte.
    body             bytea,                                -- The payload.
    waiting_for      text[],                               -- Full queues that it still has to enter; null: the gateway
                                                           -- has not looked at it yet.
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX outbox_waiting_idx ON howdah.outbox USING btree (id) WHERE (waiting_for IS NOT NULL);
ALTER TABLE howdah.outbox ALTER COLUMN body SET STORAGE EXTERNAL;

-- What people asked the gateway to do, through purge(), redrive() and their like.
CREATE TABLE howdah.command (
    id           bigint GENERATED ALWAYS AS IDENTITY,  -- What the function that asked for it returned.
    kind         text NOT NULL,                        -- What is asked for, such as purge or redrive.
    vhost        text NOT NULL,                        -- Virtual host of the queue.
    queue        text NOT NULL,                        -- Queue that it is about.
    argument     jsonb DEFAULT '{}' NOT NULL,          -- What else the gateway must know.
    requested_by text NOT NULL,                        -- Login that asked for it.
    requested_at timestamptz DEFAULT now() NOT NULL,   -- When it was asked for.
    done_at      timestamptz,                          -- When it was done or had failed; null: not yet.
    result       jsonb,                                -- What came of it.
    error        text,                                 -- Why it failed; null: it did not.
    CONSTRAINT command_pkey PRIMARY KEY (id)
);
CREATE INDEX command_open_idx ON howdah.command USING btree (id) WHERE (done_at IS NULL);

-- What only the gateway's memory knows of a queue, noted every few seconds.
CREATE TABLE howdah.queue_activity (
    queue_id  bigint NOT NULL,       -- Queue.
    in_flight bigint NOT NULL,       -- Delivered, not settled yet.
    consumers integer NOT NULL,      -- Consumers attached.
    noted_at  timestamptz NOT NULL,  -- When the gateway noted this.
    CONSTRAINT queue_activity_pkey PRIMARY KEY (queue_id),
    CONSTRAINT queue_activity_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES howdah.queue(id) ON DELETE CASCADE
) WITH (fillfactor=50);

-- Consumers of durable queues, as the running gateway notes them; see consumer_status and in_flight.
CREATE TABLE howdah.consumer (
    number       bigint NOT NULL,            -- Tells consumers of one gateway apart.
    epoch        bigint NOT NULL,            -- Epoch of the gateway that noted it; others do not count.
    queue_id     bigint NOT NULL,            -- Queue.
    group_name   text,                       -- Consumer group of a stream, empty for a classic queue; null: a position
                                             -- of its own.
    tag          text NOT NULL,              -- Consumer tag, link name or subscription.
    state        text NOT NULL,              -- active, waiting, paused or cancelled.
    protocol     text NOT NULL,              -- Protocol and version.
    user_name    text NOT NULL,              -- User of the gateway.
    client       text NOT NULL,              -- Name that the client has for itself.
    address      text NOT NULL,              -- Where it is connected from.
    arguments    jsonb NOT NULL,             -- Arguments as given, word for word.
    prefetch     integer,                    -- Messages that it takes at once; null: no limit of its own.
    credit       integer,                    -- Messages that it would take now; null: no limit.
    priority     integer NOT NULL,           -- Those with a higher one are served first.
    is_exclusive boolean NOT NULL,           -- It is the only one, by its own wish.
    auto_settle  boolean NOT NULL,           -- Messages are settled by being delivered.
    since        timestamptz NOT NULL,       -- When it began.
    in_flight    bigint NOT NULL,            -- Messages delivered to it and not settled.
    held         int8multirange[] NOT NULL,  -- Offsets of the oldest of them.
    held_since   timestamptz[] NOT NULL,     -- Since when those at the same place are there.
    noted_at     timestamptz NOT NULL,       -- When the gateway noted this.
    CONSTRAINT consumer_pkey PRIMARY KEY (number)
) WITH (fillfactor=50);

-- How far each Spark job has come: one row per job, target and queue.
CREATE TABLE howdah.etl_checkpoint (
    job        text NOT NULL,                       -- export or replay.
    target     text NOT NULL,                       -- Where it writes to: a directory, or the name of a replay.
    queue_id   bigint NOT NULL,                     -- Queue that it reads.
    "offset"   bigint NOT NULL,                     -- All up to this offset is done; -1: nothing.
    messages   bigint DEFAULT 0 NOT NULL,           -- Messages done so far.
    changed_at timestamptz DEFAULT now() NOT NULL,  -- When it last moved.
    changed_by text DEFAULT CURRENT_USER NOT NULL,  -- Login that moved it.
    CONSTRAINT etl_checkpoint_pkey PRIMARY KEY (job, target, queue_id)
);

-- Logs whose segments are kept until segment.archive says where a copy is; see keep_for_archive().
CREATE TABLE howdah.archive_mark (
    queue_id  bigint NOT NULL,                     -- Stream whose segments are kept; 0: those that the classic queues
                                                   -- share.
    marked_at timestamptz DEFAULT now() NOT NULL,  -- When it was marked.
    marked_by text NOT NULL,                       -- Login that marked it.
    CONSTRAINT archive_mark_pkey PRIMARY KEY (queue_id)
);

-- Gateways that use this database, one row for each life of one; the newest thousand of those that are
-- gone stay.
CREATE TABLE howdah.node (
    id               integer GENERATED ALWAYS AS IDENTITY,            -- Names one life of a gateway; never used again.
    cluster          text,                                            -- Name of its cluster; null: it serves alone.
    name             text NOT NULL,                                   -- Name of the gateway; the next life of it has
                                                                      -- the same.
    host             text NOT NULL,                                   -- Machine that it runs on.
    address          text,                                            -- Address that its session came from; null: a
                                                                      -- Unix socket.
    link_version     integer NOT NULL,                                -- Version of the protocol between nodes that it
                                                                      -- speaks; 0: none.
    schema_version   text NOT NULL,                                   -- Revision of the schema that it was made for.
    state            text NOT NULL,                                   -- joining: waits, and serves nobody; up: serves;
                                                                      -- leaving: ends its work in order; gone: commits
                                                                      -- nothing any more.
    beat             bigint DEFAULT 0 NOT NULL,                       -- Counts its signs of life; nobody reads a clock
                                                                      -- in it.
    lease_ms         integer NOT NULL,                                -- Milliseconds of silence after which others take
                                                                      -- it for dead; 0: it gives no signs of life.
    max_message_size bigint NOT NULL,                                 -- Largest message in bytes that it takes.
    limits           jsonb DEFAULT '{}' NOT NULL,                     -- Limits that it is configured with, to compare
                                                                      -- with those of other nodes.
    started_at       timestamptz DEFAULT clock_timestamp() NOT NULL,  -- When it joined; with the id, the name of this
                                                                      -- life even in a database that went back in time.
    gone_at          timestamptz,                                     -- When it left or was fenced; null: it is not
                                                                      -- gone.
    gone_because     text,                                            -- Why it is gone, for people; null: it is not
                                                                      -- gone.
    fenced_by        integer,                                         -- Node that took it for dead; null: it is not
                                                                      -- gone, or left in order.
    CONSTRAINT node_pkey PRIMARY KEY (id),
    CONSTRAINT node_state_check CHECK ((state = ANY (ARRAY['joining'::text, 'up'::text, 'leaving'::text, 'gone'::text])))
) WITH (fillfactor=50);

-- Imports of definitions files, the newest thousand. A file that is unchanged since the last start is
-- not imported again.
CREATE TABLE howdah.definitions_import (
    id          bigint GENERATED ALWAYS AS IDENTITY,  -- Row number.
    imported_at timestamptz DEFAULT now() NOT NULL,   -- When it was imported.
    source      text NOT NULL,                        -- Where it came from: start, HTTP or command.
    imported_by text,                                 -- User who imported it; null: the operating system knows.
    sha256      text NOT NULL,                        -- SHA-256 of the file, in hexadecimal.
    made        integer NOT NULL,                     -- Items that were new.
    changed     integer NOT NULL,                     -- Items that were changed.
    left_out    jsonb NOT NULL,                       -- What was not taken, and why, a text for each.
    CONSTRAINT definitions_import_pkey PRIMARY KEY (id)
);

-- Policies: values for queues and exchanges whose names match a pattern.
CREATE TABLE howdah.policy (
    vhost       text NOT NULL,                       -- Virtual host that it belongs to.
    name        text NOT NULL,                       -- Name.
    is_operator boolean DEFAULT false NOT NULL,      -- An operator policy: merged with the policy of a queue, and
                                                     -- stricter than it.
    pattern     text NOT NULL,                       -- Regular expression that is looked for in names.
    apply_to    text DEFAULT 'all' NOT NULL,         -- What it is for: all, queues, exchanges, classic_queues,
                                                     -- quorum_queues or streams.
    priority    integer DEFAULT 0 NOT NULL,          -- Of several that match, the one with the highest acts.
    definition  jsonb NOT NULL,                      -- Keys and values, such as max-length.
    changed_at  timestamptz DEFAULT now() NOT NULL,  -- When it was last changed.
    CONSTRAINT policy_pkey PRIMARY KEY (vhost, name, is_operator),
    CONSTRAINT policy_apply_to_check CHECK ((apply_to = ANY (ARRAY['all'::text, 'queues'::text, 'exchanges'::text, 'classic_queues'::text, 'quorum_queues'::text, 'streams'::text]))),
    CONSTRAINT policy_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Parameters of a virtual host, kept as RabbitMQ's tools set them.
CREATE TABLE howdah.parameter (
    component text NOT NULL,   -- What it is for, such as shovel.
    vhost     text NOT NULL,   -- Virtual host that it belongs to.
    name      text NOT NULL,   -- Name.
    value     jsonb NOT NULL,  -- Value, as given.
    CONSTRAINT parameter_pkey PRIMARY KEY (component, vhost, name),
    CONSTRAINT parameter_vhost_fkey FOREIGN KEY (vhost) REFERENCES howdah.vhost(name) ON DELETE CASCADE
);

-- Parameters of all virtual hosts, kept as RabbitMQ's tools set them.
CREATE TABLE howdah.global_parameter (
    name  text NOT NULL,   -- Name.
    value jsonb NOT NULL,  -- Value, as given.
    CONSTRAINT global_parameter_pkey PRIMARY KEY (name)
);

-- Parts of all that is durable, always 64: whose each is, and which generation of the journal counts
-- for it.
CREATE TABLE howdah.shard (
    id         smallint NOT NULL,          -- Number; see shard_of().
    node_id    integer,                    -- Node that owns it, and alone writes what belongs to it; null: no gateway
                                           -- has owned it yet.
    epoch      bigint DEFAULT 0 NOT NULL,  -- Counts its owners.
    generation integer NOT NULL,           -- Generation of the journal that counts for it: of the owner before, until
                                           -- the owner has adopted it.
    CONSTRAINT shard_pkey PRIMARY KEY (id),
    CONSTRAINT shard_id_check CHECK (((id >= 0) AND (id <= 63)))
) WITH (fillfactor=50);

-- Generations of the journal that have partitions; one that no shard names is dropped.
CREATE TABLE howdah.journal_generation (
    number    integer GENERATED ALWAYS AS IDENTITY,  -- Number of its partitions, such as settlement_<number>; of all
                                                     -- nodes together, and never used again.
    node_id   integer,                               -- Node that writes it, or did; null: a gateway of a release
                                                     -- before.
    opened_at timestamptz DEFAULT now() NOT NULL,    -- When it was opened.
    CONSTRAINT journal_generation_pkey PRIMARY KEY (number)
);

-- ----------------------------------------------------------------------------------------------- views

-- What each group has settled, worked out from the journal: all below floor, and acked above it.
--
--   queue_id    bigint          Queue.
--   vhost       text            Virtual host.
--   queue       text            Name of the queue.
--   kind        text            classic or stream.
--   group_name  text            Consumer group; empty for a classic queue.
--   floor       bigint          All offsets below are settled.
--   acked       int8multirange  Offsets settled above the floor.
--   written_at  timestamptz     When it last changed; null: never.
CREATE VIEW howdah.settlement_state AS
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

-- How far each consumer group is behind: one row per group of a stream, one per classic queue.
--
--   vhost                 text      Virtual host.
--   queue                 text      Name of the queue.
--   kind                  text      classic or stream.
--   group_name            text      Consumer group; empty for a classic queue.
--   floor                 bigint    All offsets below are settled.
--   tail                  bigint    Offset that the next message will have.
--   lag                   bigint    Messages that the group has not settled.
--   oldest_unsettled_age  interval  How long the oldest of them has been there; null: none is.
--   queue_id              bigint    Queue.
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

-- How every durable queue stands. All but in_flight and consumers is as of this moment.
--
--   vhost       text         Virtual host.
--   queue       text         Name of the queue.
--   kind        text         classic or stream.
--   ready       bigint       Unsettled, due and not with a consumer; for a stream, all that it keeps and that is due.
--   in_flight   bigint       Delivered and not settled, at noted_at.
--   unsettled   bigint       Messages that are not settled; for a stream, all that it keeps.
--   lag         bigint       Messages that the consumers have not settled; for a stream, of the group furthest behind.
--   oldest_age  interval     How long the oldest message has been there; null: none is.
--   size_bytes  bigint       About how large the unsettled messages are, judged by the oldest 16.
--   consumers   integer      Consumers, at noted_at.
--   head        bigint       Oldest offset that is stored, settled or not.
--   tail        bigint       Offset that the next message will have.
--   floor       bigint       All offsets below are settled; for a stream, by every group.
--   noted_at    timestamptz  When the gateway noted in_flight and consumers; null: never.
--   queue_id    bigint       Queue.
--   delayed     bigint       Not due yet: not delivered before its time; see not_before in ready_messages.
CREATE VIEW howdah.queue_status AS
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

-- Messages that are in a queue and not settled, also those that a consumer has in flight; of a stream,
-- all that it keeps. Always ask for one queue: WHERE queue = ...
--
--   vhost             text         Virtual host.
--   queue             text         Name of the queue.
--   "offset"          bigint       Place in the queue.
--   state             text         ready, delayed or expired.
--   enqueued_at       timestamptz  When it entered this queue.
--   not_before        timestamptz  Not delivered before, by the publisher's wish or after a failure; null: at once.
--   expires_at        timestamptz  When it is worth nothing; null: never.
--   delivery_count    integer      How many deliveries failed.
--   failed_because    text         Why the last one failed.
--   priority          smallint     0 to 255; null: none given.
--   durable           boolean      Publisher asked for it to survive a restart.
--   exchange          text         Exchange published to.
--   routing_key       text         Routing key, in dot form.
--   topic             text         MQTT topic, in slash form; null: not published to amq.topic.
--   content_type      text         MIME type of the body.
--   content_encoding  text         Encoding of the body.
--   message_id        text         Identifier given by the publisher.
--   correlation_id    text         What it answers or belongs to.
--   reply_to          text         Where to send the answer.
--   subject           text         Subject or type.
--   app_id            text         Application that published, by its own word.
--   user_id           text         User that published, checked.
--   group_id          text         Group that it belongs to.
--   created_at        timestamptz  When the publisher says it made it.
--   headers           jsonb        Application headers.
--   publisher         text         Who published, stamped by the gateway.
--   protocol          text         Protocol that it was published with.
--   deaths            jsonb        Where it was dead-lettered, newest first.
--   queue_id          bigint       Queue.
--   segment_id        integer      Segment that it lies in.
--   body_bytes        integer      Size of the body.
--   body              bytea        The payload; see body_text().
CREATE VIEW howdah.ready_messages AS
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

-- Messages that were dead-lettered and lie in a queue now; redrive() sends them back.
--
--   vhost           text         Virtual host.
--   queue           text         Queue that it lies in now.
--   "offset"        bigint       Place in that queue.
--   died_in         text         Queue that it last died in.
--   reason          text         rejected, expired, maxlen or delivery_limit.
--   died_at         timestamptz  When it first died there, for that reason.
--   deaths_in_all   bigint       How often it died, anywhere.
--   deaths          jsonb        All its deaths, newest first: queue, reason, count, time, exchange, routing_keys.
--   enqueued_at     timestamptz  When it entered the queue it lies in.
--   exchange        text         Exchange that it came through last.
--   routing_key     text         Routing key, in dot form.
--   topic           text         MQTT topic; null: not through amq.topic.
--   content_type    text         MIME type of the body.
--   message_id      text         Identifier given by the publisher.
--   correlation_id  text         What it answers or belongs to.
--   headers         jsonb        Application headers.
--   publisher       text         Who published, stamped by the gateway.
--   protocol        text         Protocol that it was published with.
--   queue_id        bigint       Queue that it lies in now.
--   body_bytes      integer      Size of the body.
--   body            bytea        The payload; see body_text().
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

-- Messages that SQL published and that have not entered every queue yet.
--
--   vhost       text      Virtual host.
--   queue       text      Full queue that they wait for; null: the gateway has not looked at them yet.
--   messages    bigint    How many.
--   oldest_age  interval  How long the oldest has been there.
CREATE VIEW howdah.outbox_status AS
SELECT
    o.vhost,
    w.queue,
    count(*) AS messages,
    now() - min(o.inserted_at) AS oldest_age
FROM howdah.outbox o
LEFT JOIN LATERAL unnest(o.waiting_for) AS w (queue) ON true
GROUP BY o.vhost, w.queue;

-- What people asked the gateway for in SQL or by its commands, who and when, and what came of it; for
-- a week.
--
--   id            bigint       Number of the command, for command_status().
--   kind          text         What was asked for, such as purge or redrive.
--   vhost         text         Virtual host.
--   queue         text         Queue that it is about.
--   argument      jsonb        Details of what was asked for.
--   state         text         waiting, done or failed.
--   requested_by  text         Login that asked.
--   requested_at  timestamptz  When it was asked for.
--   done_at       timestamptz  When the gateway did it; null: not yet.
--   result        jsonb        What came of it, such as how many messages.
--   error         text         Why it failed; null: it did not.
CREATE VIEW howdah.commands AS
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

-- Consumers of durable queues at this moment, as far as the gateway has noted them: it looks about
-- once a second, and lists 10,000 at most. Empty while no gateway runs. Not on a standby.
--
--   vhost         text         Virtual host.
--   queue         text         Name of the queue.
--   kind          text         classic or stream.
--   group_name    text         Consumer group of a stream, empty for a classic queue; null: a position of its own.
--   tag           text         Consumer tag (AMQP 0.9.1), link (AMQP 1.0) or subscription (MQTT); empty: a session's
--                              own queue, or single messages taken by basic.get.
--   state         text         active: it gets messages; waiting: another is the single active consumer; paused: its
--                              connection takes no more for now; cancelled: it gets none any more, and may settle what
--                              it has.
--   protocol      text         Protocol and version.
--   user_name     text         User of the gateway.
--   client        text         Name that the client has for itself: client identifier, container, connection_name.
--   address       text         Where it is connected from.
--   prefetch      integer      Messages that it takes at once; null: no limit of its own, or by credit (AMQP 1.0).
--   credit        integer      Messages that it would take now; null: no limit.
--   in_flight     bigint       Messages delivered to it and not settled.
--   listed        bigint       How many of them the view in_flight lists, the oldest: 1,000 at most, fewer with many
--                              consumers.
--   oldest_age    interval     How long it has had the oldest of them, to about a second; null: it has none.
--   priority      integer      Those with a higher one are served first.
--   is_exclusive  boolean      It is the only one, by its own wish.
--   auto_settle   boolean      Messages are settled by being delivered.
--   arguments     jsonb        Arguments as given, with an effect here or without; filters of AMQP 1.0.
--   since         timestamptz  When it began.
--   noted_at      timestamptz  When the gateway last saw a change of it.
--   consumer_id   bigint       Tells consumers apart; see in_flight.
--   queue_id      bigint       Queue.
CREATE VIEW howdah.consumer_status AS
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

-- Messages of durable queues that are delivered and not settled, with whom and since when, as far as
-- the gateway has noted them: it looks about once a second, and lists the oldest of each consumer; see
-- listed in consumer_status. Empty while no gateway runs. Not on a standby.
--
--   vhost        text         Virtual host.
--   queue        text         Name of the queue.
--   group_name   text         Consumer group of a stream, empty for a classic queue; null: a position of its own.
--   "offset"     bigint       Place in the queue; see ready_messages and peek().
--   since        timestamptz  Since when the consumer has it: the first look that found it there, about a second late.
--   tag          text         Consumer tag, link or subscription.
--   protocol     text         Protocol and version.
--   user_name    text         User of the gateway.
--   client       text         Name that the client has for itself.
--   address      text         Where it is connected from.
--   noted_at     timestamptz  When the gateway last saw a change of the consumer.
--   consumer_id  bigint       Consumer; see consumer_status.
--   queue_id     bigint       Queue.
CREATE VIEW howdah.in_flight AS
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

-- MQTT sessions that outlive their connections, and what waits for each.
--
--   vhost            text         Virtual host.
--   client_id        text         Client identifier.
--   user_name        text         User; null: anonymous.
--   protocol         text         Protocol and version of the last connection.
--   state            text         connected or disconnected.
--   connected_at     timestamptz  When it last connected.
--   disconnected_at  timestamptz  When its connection ended; null: it is connected.
--   expiry_seconds   bigint       How long it outlives its connection; null: for ever.
--   ends_at          timestamptz  When it ends unless its client comes back; null: never, or it is connected.
--   subscriptions    bigint       How many subscriptions it has.
--   queue            text         Queue that fills while the client is away.
--   messages         bigint       Messages that wait there or are in flight.
--   session_id       bigint       Session.
CREATE VIEW howdah.session_status AS
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

-- Subscriptions of MQTT sessions that are stored.
--
--   vhost                text         Virtual host.
--   client_id            text         Client identifier.
--   filter               text         Topic filter, with $share/<group>/ if shared.
--   qos                  smallint     Quality of service that was granted.
--   no_local             boolean      Not what the client itself publishes.
--   retain_as_published  boolean      The retain flag stays as it was.
--   retain_handling      smallint     Retained messages: 0 at once, 1 if the subscription is new, 2 none.
--   identifier           integer      Subscription identifier; null: none.
--   created_at           timestamptz  When it was made.
--   session_id           bigint       Session.
CREATE VIEW howdah.session_subscriptions AS
SELECT
    s.vhost, s.client_id, f.filter, f.qos, f.no_local, f.retain_as_published, f.retain_handling,
    f.identifier, f.created_at, s.id AS session_id
FROM howdah.subscription f
JOIN howdah.session s ON s.id = f.session_id;

-- Values that topics keep for whoever subscribes; see topic_matches().
--
--   vhost             text         Virtual host.
--   topic             text         Topic, in slash form.
--   qos               smallint     Quality of service that it was published with.
--   retained_at       timestamptz  When it was published.
--   expires_at        timestamptz  When it is worth nothing; null: never.
--   content_type      text         MIME type of the body.
--   content_encoding  text         Encoding of the body.
--   correlation_id    text         What it answers or belongs to.
--   reply_to          text         Where to send the answer.
--   headers           jsonb        User properties.
--   publisher         text         Who published, stamped by the gateway.
--   protocol          text         Protocol that it was published with.
--   body_bytes        integer      Size of the body.
--   body              bytea        The payload; see body_text().
CREATE VIEW howdah.retained_messages AS
SELECT
    r.vhost, r.topic, r.qos, r.retained_at, r.expires_at, r.content_type, r.content_encoding,
    r.correlation_id, r.reply_to, r.headers, r.publisher, howdah.protocol_name(r.form) AS protocol,
    octet_length(r.body) AS body_bytes, r.body
FROM howdah.retained r
WHERE r.expires_at IS NULL OR r.expires_at > now();

-- How far each Spark job has come, and how far it is behind.
--
--   job         text         export or replay.
--   target      text         Where it writes to.
--   vhost       text         Virtual host; null: the queue is gone.
--   queue       text         Name of the queue; null: it is gone.
--   kind        text         classic or stream.
--   "offset"    bigint       All below is done.
--   tail        bigint       Offset behind the newest message; null: none is stored.
--   lag         bigint       Offsets that the job has before it.
--   messages    bigint       Messages written so far.
--   changed_at  timestamptz  When it last came further.
--   changed_by  text         Login of the job.
--   queue_id    bigint       Queue.
CREATE VIEW howdah.etl_status AS
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

-- Segments of the log, and what each takes on disk.
--
--   segment_id  integer      Number of message_<id> and message_body_<id>.
--   vhost       text         Virtual host of the stream that owns it.
--   queue       text         Stream that owns it; null: all classic queues.
--   state       text         open, sealed, or retired: waits to be dropped.
--   created_at  timestamptz  When it was opened.
--   sealed_at   timestamptz  When it was closed for writing.
--   retired_at  timestamptz  Since when nobody needs it.
--   newest_at   timestamptz  Time of its newest message, known when sealed.
--   messages    bigint       Rows in it, known when sealed.
--   bytes       bigint       Bytes in it, known when sealed.
--   disk_bytes  bigint       Size of its tables and indexes on disk.
--   archive     text         Where a copy was archived; null: nowhere.
CREATE VIEW howdah.segment_status AS
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

-- Which policies act on each durable queue, and the values that result.
--
--   vhost            text    Virtual host.
--   queue            text    Name of the queue.
--   queue_type       text    Type that was declared: classic, quorum or stream.
--   policy           text    Policy that acts on it; null: none.
--   operator_policy  text    Operator policy that acts on it; null: none.
--   definition       jsonb   Both policies merged.
--   effective        jsonb   Values in force: the policies and the arguments of the queue, without their x-.
--   queue_id         bigint  Queue.
CREATE VIEW howdah.queue_policy AS
SELECT
    q.vhost,
    q.name AS queue,
    t.queue_type,
    ordinary.name AS policy,
    operator.name AS operator_policy,
    d.definition,
    howdah.merged_limits(
        a.declared,
        CASE WHEN left(q.name, 1) = '$' THEN d.definition - 'expires' ELSE d.definition END,
        ARRAY['message-ttl', 'expires', 'max-length', 'max-length-bytes', 'delivery-limit', 'max-age',
              'stream-max-segment-size-bytes', 'consumer-timeout'],
        false
    ) AS effective,
    q.id AS queue_id
FROM howdah.queue q
CROSS JOIN LATERAL (
    SELECT coalesce(q.arguments ->> 'x-queue-type', 'classic') AS queue_type
) t
CROSS JOIN LATERAL (
    SELECT CASE t.queue_type
        WHEN 'stream' THEN 'streams' WHEN 'quorum' THEN 'quorum_queues' ELSE 'classic_queues'
    END AS family
) f
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(substr(e.key, 3), e.value), '{}') AS declared
    FROM jsonb_each(q.arguments) e
    WHERE e.key LIKE 'x-%' AND e.key NOT IN ('x-queue-type', 'x-howdah-types')
) a
-- The first in order whose pattern is found in the name and whose keys the type supports.
LEFT JOIN LATERAL (
    SELECT c.name, c.definition FROM howdah.policy c
    WHERE c.vhost = q.vhost AND NOT c.is_operator AND c.apply_to IN ('all', 'queues', f.family)
      AND howdah.name_matches(q.name, c.pattern)
      AND NOT c.definition ?| howdah.unsupported_keys(f.family, c.apply_to)
    ORDER BY c.priority DESC, c.name COLLATE "C" LIMIT 1
) ordinary ON true
LEFT JOIN LATERAL (
    SELECT c.name, c.definition FROM howdah.policy c
    WHERE c.vhost = q.vhost AND c.is_operator AND c.apply_to IN ('all', 'queues', f.family)
      AND howdah.name_matches(q.name, c.pattern)
      AND NOT c.definition ?| howdah.unsupported_keys(f.family, c.apply_to)
    ORDER BY c.priority DESC, c.name COLLATE "C" LIMIT 1
) operator ON true
CROSS JOIN LATERAL (
    SELECT howdah.merged_limits(
        coalesce(ordinary.definition, '{}'), coalesce(operator.definition, '{}'),
        ARRAY['message-ttl', 'expires', 'max-length', 'max-length-bytes', 'max-in-memory-length',
              'max-in-memory-bytes', 'delivery-limit'],
        true
    ) AS definition
) d
WHERE q.name NOT LIKE '$history/%' AND q.name NOT LIKE '$seen/%';

-- ------------------------------------------------------------------------------------------- functions

-- Name of the protocol that a message was published with, from its column form.
CREATE FUNCTION howdah.protocol_name(form smallint) RETURNS text
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE form
        WHEN 0 THEN 'SQL'
        WHEN 1 THEN 'MQTT 3'
        WHEN 2 THEN 'MQTT 5'
        WHEN 3 THEN 'AMQP 0.9.1'
        WHEN 4 THEN 'AMQP 1.0'
    END
$function$;

-- MQTT topic of a routing key of amq.topic.
CREATE FUNCTION howdah.slashed(routing_key text) RETURNS text
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
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

-- Routing key of amq.topic that an MQTT topic stands for; the reverse of slashed().
CREATE FUNCTION howdah.dotted(topic text) RETURNS text
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
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

-- Routing key of a topic that may be published to, or an error that says why not. Internal.
CREATE FUNCTION howdah.topic_key(topic text) RETURNS text
LANGUAGE plpgsql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF topic IS NULL OR topic = '' THEN
        RAISE EXCEPTION 'the topic is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF topic ~ '[+#]' THEN
        RAISE EXCEPTION 'topic % has a wildcard in it', quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Publish to a name without + and #.';
    END IF;
    IF topic LIKE '$%' THEN
        RAISE EXCEPTION 'topic % begins with $, and those are the gateway''s own',
            quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'To publish into a queue, use publish(queue, body).';
    END IF;
    IF strpos(topic, '%00') > 0 THEN
        RAISE EXCEPTION 'topic % holds %%00, which stands for a character that no text can have',
            quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF octet_length(topic) > 65535 THEN
        RAISE EXCEPTION 'the topic is longer than 65535 bytes'
            USING ERRCODE = 'string_data_right_truncation';
    END IF;
    RETURN howdah.dotted(topic);
END
$function$;

-- Binding key of amq.topic that takes what an MQTT filter matches, or an error that says why there is
-- none. Internal.
CREATE FUNCTION howdah.filter_key(topic_filter text) RETURNS text
LANGUAGE plpgsql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    levels CONSTANT text[] := string_to_array(topic_filter, '/');
    level text;
    word text;
    words text[] := '{}';
BEGIN
    IF topic_filter IS NULL OR topic_filter = '' THEN
        RAISE EXCEPTION 'the topic filter is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF topic_filter ~ '^\$(queue|share)/' THEN
        RAISE EXCEPTION 'topic filter % names a queue or a share, which take no bindings',
            quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the topics themselves.';
    END IF;
    IF strpos(topic_filter, '%00') > 0 THEN
        RAISE EXCEPTION
            'topic filter % holds %%00, which stands for a character that no text can have',
            quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF cardinality(levels) > 256 OR octet_length(topic_filter) > 65535 THEN
        RAISE EXCEPTION 'the topic filter has more than 256 levels or 65535 bytes'
            USING ERRCODE = 'string_data_right_truncation';
    END IF;
    IF array_position(levels, '#') < cardinality(levels) THEN
        RAISE EXCEPTION 'topic filter % goes on after #', quote_literal(topic_filter)
            USING ERRCODE = 'invalid_parameter_value', HINT = '# must be the last level.';
    END IF;
    FOREACH level IN ARRAY levels LOOP
        IF level ~ '[+#]' AND length(level) > 1 THEN
            RAISE EXCEPTION 'topic filter % mixes a wildcard with other characters',
                quote_literal(topic_filter)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = '+ and # must each be a whole level.';
        END IF;
        -- $empty stands for the empty key as a whole topic, and for itself as a level of one.
        word := CASE WHEN level IN ('+', '#') THEN translate(level, '+', '*')
                     WHEN level ~ '^\$+empty$' THEN level
                     ELSE howdah.dotted(level) END;
        IF word IN ('*', '#') AND level NOT IN ('+', '#') THEN
            RAISE EXCEPTION
                'topic filter % has the level %, which a binding would take for a wildcard',
                quote_literal(topic_filter), quote_literal(level)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Write + in its place, and tell the topics apart by routing_key.';
        END IF;
        words := words || word;
    END LOOP;
    RETURN CASE WHEN topic_filter ~ '^\$+empty$' THEN howdah.dotted(topic_filter)
                ELSE array_to_string(words, '.') END;
END
$function$;

-- A body as text; null if it is not UTF-8.
CREATE FUNCTION howdah.body_text(body bytea) RETURNS text
LANGUAGE plpgsql
IMMUTABLE
AS $function$
BEGIN
    RETURN convert_from(body, 'UTF8');
EXCEPTION
    WHEN character_not_in_repertoire OR untranslatable_character THEN
        RETURN NULL;
END
$function$;

-- Shard that a name hashes to: of a session (by client), group, retained message (by topic) or queue.
CREATE FUNCTION howdah.shard_of(vhost text, kind text, name text) RETURNS smallint
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT (get_byte(sha256(convert_to(concat_ws(chr(10), vhost, kind, name), 'UTF8')), 0) & 63)::smallint
$function$;

-- Makes one partition and attaches it, without a lock that readers or writers wait for. Internal.
CREATE FUNCTION howdah.attach_leaf(p_parent name, p_key name, p_number integer) RETURNS void
LANGUAGE plpgsql
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    leaf CONSTANT name := format('%s_%s', p_parent, p_number);
    granted record;
BEGIN
    -- Made on its own first, with a CHECK that says what the partition bound will say: attaching it
    -- then takes SHARE UPDATE EXCLUSIVE on the parent, which neither readers nor writers wait for.
    EXECUTE format(
        'CREATE TABLE howdah.%I (LIKE howdah.%I INCLUDING ALL, CONSTRAINT leaf CHECK (%I = %s)) '
        'WITH (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1)',
        leaf, p_parent, p_key, p_number);
    -- Three thousand sampled rows tell the planner which queues are here. The server's default
    -- reads all of a segment, and writes it again with its hint bits, at the cost of the queues.
    EXECUTE (
        SELECT format('ALTER TABLE howdah.%I ', leaf)
            || string_agg(format('ALTER COLUMN %I SET STATISTICS 10', attname), ', ')
        FROM pg_attribute
        WHERE attrelid = format('howdah.%I', leaf)::regclass AND attnum > 0 AND NOT attisdropped);
    EXECUTE format(
        'COMMENT ON TABLE howdah.%I IS %L',
        leaf, format('Partition of %s: %s %s.', p_parent, p_key, p_number));
    -- Only who writes to the parent, which is the gateway, uses partitions by their names. Everybody
    -- else is let in by the parent, where policies of row-level security would be asked, too.
    FOR granted IN
        SELECT a.privilege_type, a.is_grantable, a.grantee
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid = format('howdah.%I', p_parent)::regclass AND a.grantee <> c.relowner
          AND has_table_privilege(a.grantee, c.oid, 'INSERT')
    LOOP
        EXECUTE format(
            'GRANT %s ON howdah.%I TO %s%s',
            granted.privilege_type, leaf,
            CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END,
            CASE WHEN granted.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    EXECUTE format(
        'ALTER TABLE howdah.%I ATTACH PARTITION howdah.%I FOR VALUES IN (%s)',
        p_parent, leaf, p_number);
    -- The bound says the same from now on, without a check for each row.
    EXECUTE format('ALTER TABLE howdah.%I DROP CONSTRAINT leaf', leaf);
END
$function$;

-- Opens a segment: of that stream, or with null one that all classic queues of the node share. For the
-- gateway.
CREATE FUNCTION howdah.create_segment(
    p_queue_id bigint DEFAULT NULL,
    p_node_id integer DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    created integer;
BEGIN
    IF p_queue_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM howdah.queue q WHERE q.id = p_queue_id AND q.kind = 'stream') THEN
        RAISE EXCEPTION 'there is no stream with queue id %', p_queue_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'Only streams have segments of their own; give null for the shared ones.';
    END IF;
    -- Known from the start for a stream: its segments belong to its shard, also when it is deleted.
    INSERT INTO howdah.segment (queue_id, node_id, needed_by)
    VALUES (p_queue_id, p_node_id, (SELECT ARRAY[q.shard] FROM howdah.queue q WHERE q.id = p_queue_id))
    RETURNING id INTO created;
    PERFORM howdah.attach_leaf('message', 'segment_id', created);
    PERFORM howdah.attach_leaf('message_body', 'segment_id', created);
    RETURN created;
END
$function$;

-- Notes that a segment is closed for writing, what is in it, and who may need it. For the gateway.
CREATE FUNCTION howdah.seal_segment(
    p_segment_id integer,
    p_messages bigint,
    p_bytes bigint,
    p_newest_at timestamptz
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE howdah.segment g
    SET sealed_at = coalesce(g.sealed_at, now()), messages = p_messages, bytes = p_bytes,
        newest_at = p_newest_at,
        -- All shards that could have written to it: which ones did, only those who read it know.
        needed_by = coalesce(g.needed_by, ARRAY(
            SELECT s.id FROM howdah.shard s
            WHERE s.node_id = g.node_id OR g.node_id IS NULL ORDER BY s.id))
    WHERE g.id = p_segment_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no segment %', p_segment_id USING ERRCODE = 'undefined_object';
    END IF;
END
$function$;

-- Notes since when nobody needs a segment that a reader keeps from being dropped; nothing where other
-- nodes need it. For the gateway.
CREATE FUNCTION howdah.retire_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE howdah.segment g
    SET retired_at = CASE
        WHEN (SELECT count(DISTINCT s.node_id) FROM howdah.shard s WHERE s.id = ANY (g.needed_by)) <= 1
        THEN coalesce(g.retired_at, now())
    END
    WHERE g.id = p_segment_id AND g.sealed_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no sealed segment %', p_segment_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'A segment that is still written to cannot be retired.';
    END IF;
END
$function$;

-- Notes where a copy of a sealed segment was archived.
CREATE FUNCTION howdah.mark_archived(p_segment_id integer, p_location text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE howdah.segment SET archive = p_location WHERE id = p_segment_id AND sealed_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no sealed segment %', p_segment_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'A segment that is still written to cannot be archived.';
    END IF;
END
$function$;

-- Segments of that stream (null: those that the classic queues share) are kept until they are
-- archived; with keep => false, no longer.
CREATE FUNCTION howdah.keep_for_archive(
    queue text DEFAULT NULL,
    vhost text DEFAULT '/',
    keep boolean DEFAULT true
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    marked bigint := 0;
BEGIN
    IF queue IS NOT NULL THEN
        SELECT q.id INTO marked FROM howdah.queue q
        WHERE q.vhost = keep_for_archive.vhost AND q.name = keep_for_archive.queue
          AND q.kind = 'stream';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no stream % in virtual host %',
                quote_literal(queue), quote_literal(vhost)
                USING ERRCODE = 'undefined_object',
                      HINT = 'Classic queues share their segments: leave queue out to keep those.';
        END IF;
    END IF;
    IF keep THEN
        INSERT INTO howdah.archive_mark (queue_id, marked_by) VALUES (marked, session_user)
        ON CONFLICT (queue_id) DO NOTHING;
    ELSE
        DELETE FROM howdah.archive_mark m WHERE m.queue_id = marked;
    END IF;
END
$function$;

-- Whether a segment must be kept, since it is marked for archive and not archived yet.
CREATE FUNCTION howdah.waits_for_archive(p_segment_id integer) RETURNS boolean
LANGUAGE sql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT EXISTS (
        SELECT FROM howdah.segment s JOIN howdah.archive_mark m ON m.queue_id = coalesce(s.queue_id, 0)
        WHERE s.id = p_segment_id AND s.archive IS NULL)
$function$;

-- Keeps everyone out of a segment until this transaction ends, to copy what is alive in it and let it
-- go; where other nodes need it, only those that let it go, too. Set lock_timeout first. For the
-- gateway.
CREATE FUNCTION howdah.lock_segment(p_segment_id integer, p_node_id integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    needed smallint[];
BEGIN
    -- Of two nodes that let it go at the same time, one comes second, and drops it.
    SELECT g.needed_by INTO needed FROM howdah.segment g WHERE g.id = p_segment_id FOR UPDATE;
    IF EXISTS (
        SELECT FROM howdah.shard s WHERE s.id = ANY (needed) AND s.node_id IS DISTINCT FROM p_node_id
    ) THEN
        RETURN;
    END IF;
    -- All that dropping it will need, before anything is copied out of it in vain; parents before
    -- partitions and message before message_body, as readers take them: else they could deadlock.
    LOCK TABLE ONLY howdah.message, ONLY howdah.message_body IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'LOCK TABLE howdah.%I, howdah.%I IN ACCESS EXCLUSIVE MODE',
        format('message_%s', p_segment_id), format('message_body_%s', p_segment_id));
END
$function$;

-- Drops a segment with everything in it. Set lock_timeout first. Internal: for release_segment().
CREATE FUNCTION howdah.drop_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF howdah.waits_for_archive(p_segment_id) THEN
        RAISE EXCEPTION 'segment % is marked for archive, and not archived yet', p_segment_id
            USING ERRCODE = 'object_in_use',
                  HINT = 'Run `howdah etl archive`, or take the mark away with keep_for_archive().';
    END IF;
    -- Dropping a partition locks its parent against everyone: set lock_timeout, and try again later.
    -- Always message first, as readers take them: the other way round could deadlock.
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_%s', p_segment_id));
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_body_%s', p_segment_id));
    DELETE FROM howdah.segment WHERE id = p_segment_id;
    IF NOT FOUND THEN
        RAISE NOTICE 'there is no segment %: nothing dropped', p_segment_id;
    END IF;
END
$function$;

-- Notes that the shards of a node need a segment no more; the last one drops it, and gets true. Set
-- lock_timeout first. For the gateway.
CREATE FUNCTION howdah.release_segment(p_segment_id integer, p_node_id integer) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    left_over smallint[];
BEGIN
    -- Whoever comes second waits for the row, and finds what the first has left of the array.
    UPDATE howdah.segment g SET needed_by = ARRAY(
        SELECT n.shard FROM unnest(g.needed_by) AS n (shard)
        WHERE NOT EXISTS (SELECT FROM howdah.shard s WHERE s.id = n.shard AND s.node_id = p_node_id)
        ORDER BY n.shard)
    WHERE g.id = p_segment_id
    RETURNING g.needed_by INTO left_over;
    IF cardinality(left_over) > 0 THEN
        RETURN false;
    END IF;
    PERFORM howdah.drop_segment(p_segment_id);
    RETURN true;
END
$function$;

-- Takes over the open segments of nodes whose shards this node owns now, before it adopts these. For
-- the gateway.
CREATE FUNCTION howdah.adopt_segments(p_node_id integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- An open segment that classic queues share belongs to a node. Who takes over all shards of that node
    -- goes on with it; where there are several heirs, the first seals it, for all of them.
    UPDATE howdah.segment g
    SET node_id = p_node_id,
        sealed_at = CASE WHEN w.is_shared THEN now() END,
        needed_by = CASE WHEN w.is_shared THEN w.shards END
    FROM (
        SELECT j.node_id, array_agg(s.id ORDER BY s.id) AS shards,
               bool_or(s.node_id IS DISTINCT FROM p_node_id) AS is_shared
        FROM howdah.shard s JOIN howdah.journal_generation j ON j.number = s.generation
        WHERE j.node_id IS DISTINCT FROM p_node_id
        GROUP BY j.node_id
        HAVING bool_or(s.node_id = p_node_id)
    ) w
    WHERE g.node_id IS NOT DISTINCT FROM w.node_id AND g.queue_id IS NULL AND g.sealed_at IS NULL;
    UPDATE howdah.segment g SET node_id = p_node_id
    WHERE g.queue_id IS NOT NULL AND g.sealed_at IS NULL AND g.node_id IS DISTINCT FROM p_node_id
      AND g.needed_by && ARRAY(SELECT s.id FROM howdah.shard s WHERE s.node_id = p_node_id);
END
$function$;

-- Makes the journal partitions of a generation, those that are not there yet. Internal.
CREATE FUNCTION howdah.attach_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    journal name;
BEGIN
    FOREACH journal IN ARRAY
        ARRAY['settlement', 'redelivery', 'deduplication', 'packet', 'commit_mark']
    LOOP
        -- A gateway that was stopped half way does it again.
        IF to_regclass(format('howdah.%I', format('%s_%s', journal, p_generation))) IS NULL THEN
            PERFORM howdah.attach_leaf(journal, 'generation', p_generation);
        END IF;
    END LOOP;
END
$function$;

-- Opens a generation of the journal that a node writes, and returns its number. For the gateway.
CREATE FUNCTION howdah.open_generation(p_node_id integer) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    opened integer;
BEGIN
    INSERT INTO howdah.journal_generation (node_id) VALUES (p_node_id) RETURNING number INTO opened;
    PERFORM howdah.attach_generation(opened);
    RETURN opened;
END
$function$;

-- Generations of the journal that no shard names and no node writes. For the gateway.
CREATE FUNCTION howdah.unused_generations() RETURNS SETOF integer
LANGUAGE sql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    -- Of a node that lives, the newest is in use, also before a shard names it.
    SELECT g.number FROM howdah.journal_generation g
    WHERE NOT EXISTS (SELECT FROM howdah.shard s WHERE s.generation = g.number)
      AND to_regclass(format('howdah.settlement_%s', g.number)) IS NOT NULL
      AND (
          EXISTS (
              SELECT FROM howdah.journal_generation l
              WHERE l.node_id = g.node_id AND l.number > g.number)
          OR NOT EXISTS (SELECT FROM howdah.node n WHERE n.id = g.node_id AND n.state <> 'gone'))
    ORDER BY g.number
$function$;

-- Drops the journal partitions of a generation that no longer counts. Set lock_timeout first. For the
-- gateway.
CREATE FUNCTION howdah.drop_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    journal name;
    passed integer;
BEGIN
    IF p_generation NOT IN (SELECT howdah.unused_generations()) THEN
        RAISE EXCEPTION 'generation % is in use', p_generation
            USING ERRCODE = 'object_in_use',
                  HINT = 'Only those may be dropped that unused_generations() names.';
    END IF;
    FOREACH journal IN ARRAY ARRAY['settlement', 'redelivery', 'deduplication', 'packet'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('%s_%s', journal, p_generation));
    END LOOP;
    -- The marks of a node's generation stay for one more: transactions that began in it leave theirs
    -- there, also when the next one has begun. A node that is gone begins none.
    FOR passed IN
        SELECT g.number FROM howdah.journal_generation g
        WHERE to_regclass(format('howdah.settlement_%s', g.number)) IS NULL AND (
            NOT EXISTS (SELECT FROM howdah.node n WHERE n.id = g.node_id AND n.state <> 'gone')
            OR g.number < p_generation AND g.node_id = (
                SELECT d.node_id FROM howdah.journal_generation d WHERE d.number = p_generation))
    LOOP
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('commit_mark_%s', passed));
        DELETE FROM howdah.journal_generation WHERE number = passed;
    END LOOP;
END
$function$;

-- Raises insufficient_privilege for whoever does not call through a view. Internal: for the views.
CREATE FUNCTION howdah.check_view_key(view_key uuid) RETURNS void
LANGUAGE plpgsql
STABLE
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM howdah.view_key k WHERE k.value = check_view_key.view_key) THEN
        RAISE EXCEPTION 'this function is for the views of schema howdah'
            USING ERRCODE = 'insufficient_privilege', HINT = 'Ask a view, such as howdah.queue_status.';
    END IF;
END
$function$;

-- Generation of the journal that counts for a queue: that of its shard. Internal: for the views.
CREATE FUNCTION howdah.generation_of(queue_id bigint) RETURNS integer
LANGUAGE sql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT s.generation FROM howdah.queue q JOIN howdah.shard s ON s.id = q.shard
    WHERE q.id = generation_of.queue_id
$function$;

-- Segments in which no message of a queue counts any more, whatever lies there. Internal: for the
-- views.
CREATE FUNCTION howdah.left_segments(queue_id bigint) RETURNS integer[]
LANGUAGE sql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(array_agg(g.id), '{}')
    FROM howdah.queue q JOIN howdah.segment g ON g.retired_at IS NOT NULL OR NOT q.shard = ANY (g.needed_by)
    WHERE q.id = left_segments.queue_id
$function$;

-- Offset of the oldest message of a queue that is on disk; null: there is none. Internal: for the
-- views.
CREATE FUNCTION howdah.oldest_offset(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m."offset" FROM howdah.message m
        WHERE m.queue_id = oldest_offset.queue_id ORDER BY m."offset" LIMIT 1);
END
$function$;

-- Offset of the newest message of a queue that is on disk; null: there is none. Internal: for the
-- views.
CREATE FUNCTION howdah.newest_offset(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m."offset" FROM howdah.message m
        WHERE m.queue_id = newest_offset.queue_id ORDER BY m."offset" DESC LIMIT 1);
END
$function$;

-- When the first message of a queue from an offset on entered it; null: there is none. Internal: for
-- the views.
CREATE FUNCTION howdah.enqueued_at(queue_id bigint, from_offset bigint, view_key uuid) RETURNS timestamptz
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT m.enqueued_at FROM howdah.message m
        WHERE m.queue_id = enqueued_at.queue_id AND m."offset" >= enqueued_at.from_offset
        ORDER BY m."offset" LIMIT 1);
END
$function$;

-- About how large the messages of a queue are, judged by 16 from an offset on. Internal: for the
-- views.
CREATE FUNCTION howdah.average_bytes(queue_id bigint, from_offset bigint, view_key uuid) RETURNS numeric
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN (
        SELECT avg(100 + p.bytes)
        FROM (
            SELECT coalesce(pg_column_size(m.headers), 0) + coalesce(octet_length(m.native), 0)
                   + coalesce(octet_length(m.body), (
                       SELECT octet_length(b.body) FROM howdah.message_body b
                       WHERE b.id = m.body_id AND b.segment_id = m.segment_id
                   ), 0) AS bytes
            FROM howdah.message m
            WHERE m.queue_id = average_bytes.queue_id AND m."offset" >= average_bytes.from_offset
            ORDER BY m."offset" LIMIT 16
        ) p);
END
$function$;

-- Consumer groups of a stream that have settled something. Internal: for the views.
CREATE FUNCTION howdah.group_names(queue_id bigint, view_key uuid) RETURNS SETOF text
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1 ROWS 2
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
DECLARE
    current_generation CONSTANT integer := howdah.generation_of(group_names.queue_id);
    reached text;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    -- From one group to the next by index, however many rows each has.
    SELECT min(j.group_name) INTO reached FROM howdah.settlement j
    WHERE j.queue_id = group_names.queue_id AND j.generation = current_generation;
    WHILE reached IS NOT NULL LOOP
        RETURN NEXT reached;
        SELECT min(j.group_name) INTO reached FROM howdah.settlement j
        WHERE j.queue_id = group_names.queue_id AND j.generation = current_generation
          AND j.group_name > reached;
    END LOOP;
END
$function$;

-- What a group has settled, worked out from the journal; nulls: nothing. Internal: for the views.
CREATE FUNCTION howdah.settled(queue_id bigint, group_name text, view_key uuid) RETURNS TABLE (floor bigint, acked int8multirange, written_at timestamptz)
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1 ROWS 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := howdah.generation_of(settled.queue_id);
    first_seq CONSTANT bigint := coalesce((
        SELECT f.seq FROM howdah.settlement f
        WHERE f.queue_id = settled.queue_id AND f.group_name = settled.group_name AND f.is_full
          AND f.generation = current_generation
        ORDER BY f.seq DESC LIMIT 1), 0);
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN QUERY
        SELECT max(j.floor), range_agg(r.span), max(j.written_at)
        FROM howdah.settlement j
        LEFT JOIN LATERAL unnest(j.acked) AS r(span) ON true
        WHERE j.queue_id = settled.queue_id AND j.group_name = settled.group_name
          AND j.generation = current_generation AND j.seq >= first_seq;
END
$function$;

-- Ranges of offsets that a queue has still messages at, cut small. Internal: for the views.
CREATE FUNCTION howdah.unsettled_chunks(queue_id bigint, view_key uuid) RETURNS TABLE (first bigint, past bigint)
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1 ROWS 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    chunk CONSTANT bigint := 1000;
    past CONSTANT bigint := howdah.newest_offset(queue_id, unsettled_chunks.view_key) + 1;
    spans int8multirange;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    SELECT int8multirange(int8range(s.floor, past)) - s.acked INTO spans
    FROM howdah.settlement_state s
    WHERE s.queue_id = unsettled_chunks.queue_id AND s.kind = 'classic' AND s.floor < past;
    IF NOT FOUND THEN
        SELECT int8multirange(int8range(howdah.oldest_offset(q.id, unsettled_chunks.view_key), past))
        INTO spans
        FROM howdah.queue q WHERE q.id = unsettled_chunks.queue_id AND q.kind = 'stream';
    END IF;
    -- Between what is settled, each chunk a range of the primary key: whoever wants ten messages
    -- of ten million reads one chunk.
    RETURN QUERY
        SELECT c.first, least(c.first + chunk, upper(r.span))
        FROM unnest(spans) AS r(span)
        CROSS JOIN LATERAL generate_series(lower(r.span), upper(r.span) - 1, chunk) AS c(first);
END
$function$;

-- Messages of a queue in a range of offsets, with what is known of their deliveries. Internal: for the
-- views.
CREATE FUNCTION howdah.messages_between(queue_id bigint, first bigint, past bigint, view_key uuid) RETURNS TABLE (
    "offset" bigint,
    enqueued_at timestamptz,
    not_before timestamptz,
    expires_at timestamptz,
    delivery_count integer,
    failed_because text,
    priority smallint,
    durable boolean,
    exchange text,
    routing_key text,
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
    form smallint,
    deaths jsonb,
    segment_id integer,
    body bytea
)
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1 ROWS 10
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := howdah.generation_of(messages_between.queue_id);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] := howdah.left_segments(messages_between.queue_id);
BEGIN
    PERFORM howdah.check_view_key(view_key);
    RETURN QUERY
        SELECT
            m."offset", m.enqueued_at, coalesce(d.not_before, m.not_before), m.expires_at,
            coalesce(d.count, 0), d.reason, m.priority, m.durable, m.exchange, m.routing_key,
            m.content_type, m.content_encoding, m.message_id, m.correlation_id, m.reply_to,
            m.subject, m.app_id, m.user_id, m.group_id, m.created_at, m.headers, m.publisher,
            m.form, m.deaths, m.segment_id,
            CASE WHEN m.body_id IS NULL THEN m.body ELSE (
                SELECT b.body FROM howdah.message_body b
                WHERE b.id = m.body_id AND b.segment_id = m.segment_id
            ) END
        FROM howdah.message m
        LEFT JOIN LATERAL (
            SELECT f.count, f.not_before, f.reason
            FROM howdah.redelivery f
            WHERE f.generation = current_generation
              AND f.queue_id = m.queue_id AND f."offset" = m."offset"
            ORDER BY f.count DESC, f.amended DESC LIMIT 1
        ) d ON true
        WHERE m.queue_id = messages_between.queue_id
          AND m."offset" >= messages_between.first AND m."offset" < messages_between.past
          AND m.segment_id <> ALL (retired)
        ORDER BY m."offset";
END
$function$;

-- How many messages of a queue are not due yet: by their publisher's wish, after a failed delivery, or
-- because a consumer put them off. Internal: for the views.
CREATE FUNCTION howdah.delayed_count(queue_id bigint, view_key uuid) RETURNS bigint
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    current_generation CONSTANT integer := howdah.generation_of(delayed_count.queue_id);
    -- A message that outlives its segment is copied into a newer one before the old one goes.
    retired CONSTANT integer[] := howdah.left_segments(delayed_count.queue_id);
    settled_below bigint;
    settled_above int8multirange;
BEGIN
    PERFORM howdah.check_view_key(view_key);
    IF NOT EXISTS (
        SELECT FROM howdah.message m
        WHERE m.queue_id = delayed_count.queue_id AND m.not_before > now()
    ) AND NOT EXISTS (
        SELECT FROM howdah.redelivery r
        WHERE r.queue_id = delayed_count.queue_id AND r.not_before > now()
          AND r.generation = current_generation
    ) THEN
        RETURN 0;
    END IF;
    -- Purged before its time, a message is settled. Of a stream nothing ever is.
    SELECT s.floor, s.acked INTO settled_below, settled_above
    FROM howdah.queue q CROSS JOIN LATERAL howdah.settled(q.id, '', delayed_count.view_key) s
    WHERE q.id = delayed_count.queue_id AND q.kind = 'classic';
    -- A delivery that failed, or that a consumer put off, decides over what the publisher asked for.
    RETURN (
        SELECT count(*) FROM howdah.message m
        WHERE m.queue_id = delayed_count.queue_id AND m.not_before > now()
          AND m."offset" >= coalesce(settled_below, 0)
          AND NOT m."offset" <@ coalesce(settled_above, '{}')
          AND m.segment_id <> ALL (retired)
          AND (
              SELECT r.not_before FROM howdah.redelivery r
              WHERE r.generation = current_generation
                AND r.queue_id = m.queue_id AND r."offset" = m."offset"
              ORDER BY r.count DESC, r.amended DESC LIMIT 1
          ) IS NULL
    ) + (
        SELECT count(*) FROM howdah.redelivery r
        WHERE r.generation = current_generation
          AND r.queue_id = delayed_count.queue_id AND r.not_before > now()
          AND r."offset" >= coalesce(settled_below, 0)
          AND NOT r."offset" <@ coalesce(settled_above, '{}')
          AND NOT EXISTS (
              SELECT FROM howdah.redelivery n
              WHERE n.generation = current_generation
                AND n.queue_id = r.queue_id AND n."offset" = r."offset"
                AND (n.count, n.amended) > (r.count, r.amended))
    );
END
$function$;

-- Whether a gateway owns this database now.
CREATE FUNCTION howdah.is_served() RETURNS boolean
LANGUAGE plpgsql
STABLE SECURITY DEFINER COST 1
SET search_path TO 'pg_catalog', 'pg_temp'
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

-- The offsets that a consumer has, each with since when. Internal: for the views.
CREATE FUNCTION howdah.held_offsets(held int8multirange[], held_since timestamptz[]) RETURNS TABLE ("offset" bigint, since timestamptz)
LANGUAGE plpgsql
IMMUTABLE COST 1 ROWS 10
SET search_path TO 'pg_catalog', 'pg_temp'
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

-- Whether there is a durable queue of that name, or a command that declares it waits. Internal.
CREATE FUNCTION howdah.is_declared(vhost text, queue text) RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN EXISTS (
        SELECT FROM howdah.queue q WHERE q.vhost = is_declared.vhost AND q.name = is_declared.queue
    ) OR EXISTS (
        SELECT FROM howdah.command c
        WHERE c.done_at IS NULL AND c.kind = 'declare_queue'
          AND c.vhost = is_declared.vhost AND c.queue = is_declared.queue);
END
$function$;

-- Refuses texts that are longer than a protocol can carry, by name. Internal.
CREATE FUNCTION howdah.check_texts(texts jsonb) RETURNS void
LANGUAGE plpgsql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    too_long text;
BEGIN
    SELECT t.key INTO too_long FROM jsonb_each_text(texts) t
    WHERE octet_length(t.value) > 65535 ORDER BY t.key LIMIT 1;
    IF too_long IS NOT NULL THEN
        RAISE EXCEPTION '% is longer than 65535 bytes', too_long
            USING ERRCODE = 'string_data_right_truncation', HINT = 'Put it into the body.';
    END IF;
END
$function$;

-- Refuses what the gateway could not publish. Internal.
CREATE FUNCTION howdah.check_publish(
    vhost text,
    exchange text,
    routing_key text,
    body bytea,
    headers jsonb,
    priority integer,
    expires_in interval,
    delay interval,
    mandatory boolean
) RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    built_in CONSTANT text[] :=
        ARRAY['', 'amq.direct', 'amq.fanout', 'amq.headers', 'amq.match', 'amq.topic'];
    longest CONSTANT interval := '1000 years';
    largest CONSTANT bigint := (SELECT g.max_message_size FROM howdah.gateway g);
    size CONSTANT bigint := octet_length(body) + coalesce(octet_length(headers::text), 0);
BEGIN
    IF routing_key IS NULL OR body IS NULL OR vhost IS NULL OR exchange IS NULL THEN
        RAISE EXCEPTION 'routing_key, body, exchange and vhost must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'Publish an empty body as '''', and to a queue with exchange ''''.';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = check_publish.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_literal(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out to publish in ''/''.';
    END IF;
    IF exchange <> ALL (built_in) AND NOT EXISTS (
        SELECT FROM howdah.exchange e
        WHERE e.vhost = check_publish.vhost AND e.name = check_publish.exchange
    ) THEN
        RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
            quote_literal(exchange), quote_literal(vhost)
            USING ERRCODE = 'undefined_object',
                  HINT = 'Declare it first, or leave exchange out to publish to the queue that '
                         'routing_key names.';
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'headers must be a JSON object, not %', jsonb_typeof(headers)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For example ''{"region": "eu"}''.';
    END IF;
    IF priority NOT BETWEEN 0 AND 255 THEN
        RAISE EXCEPTION 'priority is %, and must be from 0 to 255', priority
            USING ERRCODE = 'numeric_value_out_of_range';
    END IF;
    IF NOT coalesce(expires_in BETWEEN '0' AND longest, true) THEN
        RAISE EXCEPTION 'expires_in is %, and must be from 0 to %', expires_in, longest
            USING ERRCODE = 'interval_field_overflow', HINT = 'Leave it out for never.';
    END IF;
    IF NOT coalesce(delay BETWEEN '0' AND longest, true) THEN
        RAISE EXCEPTION 'delay is %, and must be from 0 to %', delay, longest
            USING ERRCODE = 'interval_field_overflow', HINT = 'Leave it out for none.';
    END IF;
    IF exchange = '' AND coalesce(mandatory, true) AND NOT howdah.is_declared(vhost, routing_key) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_literal(left(routing_key, 255)), quote_literal(vhost)
            USING ERRCODE = 'undefined_object',
                  HINT = 'Declare it first, with declare_queue(); or say mandatory => false for a '
                         'queue in the gateway''s memory.';
    END IF;
    IF size > largest THEN
        RAISE EXCEPTION 'the message is % bytes, and the gateway takes % at most', size, largest
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Publish less at once, or raise broker.max_message_size.';
    END IF;
END
$function$;

-- Publishes a message when this transaction commits; to the queue that routing_key names, or through
-- an exchange. A queue that there is not is refused, unless mandatory is false. Returns its number in
-- the outbox.
CREATE FUNCTION howdah.publish(
    routing_key text,
    body bytea,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT NULL,
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false,
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    -- Not now(): a long transaction would publish messages that expired before they were made.
    made_at CONSTANT timestamptz := clock_timestamp();
    published bigint;
BEGIN
    -- One by one only if one could be too long: a call takes 0.10 ms this way, 0.20 ms that way.
    IF octet_length(concat(
        routing_key, content_type, content_encoding, message_id, correlation_id, reply_to, subject,
        app_id, group_id)) > 65535
    THEN
        PERFORM howdah.check_texts(jsonb_build_object(
            'routing_key', routing_key, 'content_type', content_type,
            'content_encoding', content_encoding, 'message_id', message_id,
            'correlation_id', correlation_id, 'reply_to', reply_to, 'subject', subject,
            'app_id', app_id, 'group_id', group_id));
    END IF;
    PERFORM howdah.check_publish(
        vhost, exchange, routing_key, body, headers, priority, expires_in, delay, mandatory);
    IF retain AND exchange <> 'amq.topic' THEN
        RAISE EXCEPTION 'only a message to amq.topic can be retained'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use publish_topic().';
    END IF;
    INSERT INTO howdah.outbox (
        vhost, not_before, retain, requested_by, inserted_at,
        expires_at, priority, durable, exchange, routing_key, content_type, content_encoding,
        message_id, correlation_id, reply_to, subject, app_id, group_id, created_at, headers,
        publisher, body
    ) VALUES (
        publish.vhost, made_at + delay, coalesce(publish.retain, false), session_user, made_at,
        made_at + expires_in, publish.priority, coalesce(publish.durable, true),
        publish.exchange, publish.routing_key, publish.content_type, publish.content_encoding,
        publish.message_id, publish.correlation_id, publish.reply_to, publish.subject,
        publish.app_id, publish.group_id, made_at, publish.headers, session_user, publish.body
    ) RETURNING id INTO published;
    RETURN published;
END
$function$;

-- Publishes text, as UTF-8, when this transaction commits; see the form for bytea.
CREATE FUNCTION howdah.publish(
    routing_key text,
    body text,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'text/plain; charset=utf-8',
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false,
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish(
        routing_key, convert_to(body, 'UTF8'), exchange, headers, content_type, content_encoding,
        message_id, correlation_id, reply_to, subject, app_id, group_id, priority, expires_in,
        delay, durable, vhost, retain, mandatory)
$function$;

-- Publishes JSON when this transaction commits; see the form for bytea.
CREATE FUNCTION howdah.publish(
    routing_key text,
    body jsonb,
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    content_encoding text DEFAULT NULL,
    message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    subject text DEFAULT NULL,
    app_id text DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    retain boolean DEFAULT false,
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish(
        routing_key, convert_to(body::text, 'UTF8'), exchange, headers, content_type,
        content_encoding, message_id, correlation_id, reply_to, subject, app_id, group_id,
        priority, expires_in, delay, durable, vhost, retain, mandatory)
$function$;

-- Publishes to an MQTT topic, such as plant/7/temperature, when this transaction commits.
CREATE FUNCTION howdah.publish_topic(
    topic text,
    body bytea,
    retain boolean DEFAULT false,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish(
        howdah.topic_key(topic), body, exchange => 'amq.topic', headers => headers,
        content_type => content_type, correlation_id => correlation_id, reply_to => reply_to,
        expires_in => expires_in, delay => delay, durable => durable, vhost => vhost,
        retain => retain)
$function$;

-- Publishes text, as UTF-8, to an MQTT topic when this transaction commits.
CREATE FUNCTION howdah.publish_topic(
    topic text,
    body text,
    retain boolean DEFAULT false,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'text/plain; charset=utf-8',
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish_topic(
        topic, convert_to(body, 'UTF8'), retain, headers, content_type, correlation_id, reply_to,
        expires_in, delay, durable, vhost)
$function$;

-- Publishes JSON to an MQTT topic when this transaction commits.
CREATE FUNCTION howdah.publish_topic(
    topic text,
    body jsonb,
    retain boolean DEFAULT false,
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    correlation_id text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish_topic(
        topic, convert_to(body::text, 'UTF8'), retain, headers, content_type, correlation_id,
        reply_to, expires_in, delay, durable, vhost)
$function$;

-- Publishes a message for each body, in their order, when this transaction commits: one statement for
-- thousands. Returns how many.
CREATE FUNCTION howdah.publish_many(
    routing_key text,
    bodies bytea[],
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT NULL,
    message_ids text[] DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    made_at CONSTANT timestamptz := clock_timestamp();
    published bigint;
BEGIN
    IF cardinality(message_ids) <> coalesce(cardinality(bodies), 0) THEN
        RAISE EXCEPTION 'there are % bodies and % message_ids',
            coalesce(cardinality(bodies), 0), cardinality(message_ids)
            USING ERRCODE = 'array_subscript_error', HINT = 'Give one for each body, or none.';
    END IF;
    -- Of all bodies, null first, and then the largest.
    PERFORM howdah.check_publish(
        vhost, exchange, routing_key,
        coalesce((SELECT b FROM unnest(bodies) b ORDER BY octet_length(b) DESC NULLS FIRST LIMIT 1),
                 CASE WHEN array_position(bodies, NULL) IS NULL THEN ''::bytea END),
        headers, priority, expires_in, delay, mandatory);
    PERFORM howdah.check_texts(jsonb_build_object(
        'routing_key', routing_key, 'content_type', content_type,
        'message_ids', (SELECT m FROM unnest(message_ids) m ORDER BY octet_length(m) DESC NULLS LAST
                        LIMIT 1)));
    INSERT INTO howdah.outbox (
        vhost, not_before, requested_by, inserted_at, expires_at, priority, durable, exchange,
        routing_key, content_type, message_id, created_at, headers, publisher, body
    )
    SELECT publish_many.vhost, made_at + delay, session_user, made_at, made_at + expires_in,
           publish_many.priority, coalesce(publish_many.durable, true), publish_many.exchange,
           publish_many.routing_key, publish_many.content_type, m.message_id, made_at,
           publish_many.headers, session_user, m.body
    FROM unnest(bodies, message_ids) WITH ORDINALITY AS m(body, message_id, place)
    ORDER BY m.place;
    GET DIAGNOSTICS published = ROW_COUNT;
    RETURN published;
END
$function$;

-- Publishes many texts, as UTF-8, when this transaction commits; see the form for bytea[].
CREATE FUNCTION howdah.publish_many(
    routing_key text,
    bodies text[],
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'text/plain; charset=utf-8',
    message_ids text[] DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish_many(
        routing_key,
        ARRAY(SELECT convert_to(b, 'UTF8') FROM unnest(bodies) WITH ORDINALITY AS u(b, place) ORDER BY u.place),
        exchange, headers, content_type, message_ids, priority, expires_in, delay, durable, vhost,
        mandatory)
$function$;

-- Publishes many JSON, when this transaction commits; see the form for bytea[].
CREATE FUNCTION howdah.publish_many(
    routing_key text,
    bodies jsonb[],
    exchange text DEFAULT '',
    headers jsonb DEFAULT NULL,
    content_type text DEFAULT 'application/json',
    message_ids text[] DEFAULT NULL,
    priority integer DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    durable boolean DEFAULT true,
    vhost text DEFAULT '/',
    mandatory boolean DEFAULT true
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.publish_many(
        routing_key,
        ARRAY(SELECT convert_to(b::text, 'UTF8') FROM unnest(bodies) WITH ORDINALITY AS u(b, place) ORDER BY u.place),
        exchange, headers, content_type, message_ids, priority, expires_in, delay, durable, vhost,
        mandatory)
$function$;

-- Has the gateway look at the outbox at once, not at its next turn. Call it after the commit that
-- published, in a transaction of its own.
CREATE FUNCTION howdah.wake() RETURNS void
LANGUAGE sql
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT pg_notify('howdah_wake', '')
$function$;

-- A body as JSON; null if it is none.
CREATE FUNCTION howdah.body_json(body bytea) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
AS $function$
BEGIN
    RETURN howdah.body_text(body)::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
        RETURN NULL;
END
$function$;

-- What a consumer's exception said, by the headers that common libraries write: the first line, 200
-- characters at most; null: no such header.
CREATE FUNCTION howdah.failure_text(headers jsonb) RETURNS text
LANGUAGE sql
IMMUTABLE
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

-- Messages of a queue, from an offset on or, newest first, from there back; of a classic queue the
-- unsettled ones, or with_settled all that are still stored. Looks at scan messages at most: ask on
-- from the last offset. Changes nothing.
CREATE FUNCTION howdah.browse(
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
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
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

-- The offset from which on the messages of a queue entered it at that time or later.
CREATE FUNCTION howdah.offset_at(queue text, "time" timestamptz, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
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

-- The dead letters that lie in a queue, grouped by the queue they died in, why, and what the
-- consumer's exception said. Looks at scan messages at most.
CREATE FUNCTION howdah.dead_letter_causes(
    queue text,
    from_offset bigint DEFAULT NULL,
    scan integer DEFAULT 100000,
    vhost text DEFAULT '/'
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
LANGUAGE sql
STABLE
AS $function$
    SELECT b.died_in, b.reason, b.failure, count(*), sum(b.body_bytes), min(b.died_at),
           max(b.died_at), min(b."offset"), max(b."offset")
    FROM howdah.browse(queue, from_offset, scan, vhost => vhost) b
    WHERE b.deaths IS NOT NULL
    GROUP BY b.died_in, b.reason, b.failure
    ORDER BY count(*) DESC, b.died_in, b.reason, b.failure
$function$;

-- What log and journal know of one message: created, died elsewhere before, enqueued, deliveries that
-- failed, in whose hands it is, settled. The order is not by time; sort by "at".
CREATE FUNCTION howdah.message_life(queue text, "offset" bigint, vhost text DEFAULT '/') RETURNS TABLE (at timestamptz, event text, detail jsonb)
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
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

-- Whether an MQTT topic matches a filter, such as plant/+/temperature or plant/#.
CREATE FUNCTION howdah.topic_matches(topic text, filter text) RETURNS boolean
LANGUAGE sql
IMMUTABLE
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

-- Whether a routing key matches a pattern of a topic exchange. Internal: for routed_queues().
CREATE FUNCTION howdah.key_matches(routing_key text, pattern text) RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $function$
    -- Each word has a dot in front: so no word at all, which # also is, needs no rule of its own.
    SELECT CASE WHEN routing_key = '' THEN '' ELSE '.' || routing_key END ~ ('^' || coalesce((
        SELECT string_agg(
            CASE w.word
                WHEN '*' THEN '\.[^.]*'
                WHEN '#' THEN '(\.[^.]*)*'
                ELSE '\.' || regexp_replace(w.word, '([][().*?{}|^$\\+#])', '\\\1', 'g')
            END, '' ORDER BY w.place)
        FROM unnest(string_to_array(pattern, '.')) WITH ORDINALITY AS w (word, place)
    ), '') || '$')
$function$;

-- Whether headers match the arguments of a binding of a headers exchange. Internal: for
-- routed_queues().
CREATE FUNCTION howdah.headers_match(headers jsonb, arguments jsonb) RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $function$
    SELECT CASE
        WHEN coalesce(arguments ->> 'x-match', 'all') LIKE 'all%' THEN coalesce(bool_and(m.holds), true)
        ELSE coalesce(bool_or(m.holds), false)
    END
    FROM (
        SELECT CASE
            WHEN jsonb_typeof(a.value) = 'null' THEN headers ? a.key
            ELSE coalesce(headers -> a.key = a.value, false)
        END AS holds
        FROM jsonb_each(arguments) AS a (key, value)
        WHERE a.key NOT IN ('x-match', 'x-howdah-types')
          AND (coalesce(arguments ->> 'x-match', '') LIKE '%-with-x' OR a.key NOT LIKE 'x-%')
    ) m
$function$;

-- The durable queues that a message would go to, by which exchange and which pattern: also those of
-- stored MQTT sessions, without groups of shared subscriptions. Of an exchange that chooses by hash or
-- by chance, all that it chooses among. What is in the gateway's memory only is not there.
CREATE FUNCTION howdah.routed_queues(
    exchange text,
    routing_key text,
    headers jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS TABLE (queue text, source text, pattern text, is_one_of_several boolean)
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_variable
DECLARE
    pending text[] := ARRAY[exchange];
    seen text[] := ARRAY[exchange];
    current_name text;
    current_kind text;
    alternate text;
    bound record;
    is_matched boolean;
BEGIN
    IF exchange IS NULL OR routing_key IS NULL OR jsonb_typeof(headers) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'give an exchange, a routing_key and headers that are a JSON object'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The default exchange is ''''.';
    END IF;
    WHILE cardinality(pending) > 0 AND cardinality(seen) <= 1000 LOOP
        current_name := pending[1];
        pending := pending[2:];
        SELECT CASE e.kind WHEN 'x-delayed-message' THEN e.arguments ->> 'x-delayed-type' ELSE e.kind END,
               e.arguments ->> 'alternate-exchange'
        INTO current_kind, alternate
        FROM howdah.exchange e WHERE e.vhost = routed_queues.vhost AND e.name = current_name;
        IF NOT FOUND THEN
            alternate := NULL;
            current_kind := CASE current_name
                WHEN '' THEN 'default' WHEN 'amq.direct' THEN 'direct' WHEN 'amq.fanout' THEN 'fanout'
                WHEN 'amq.topic' THEN 'topic' WHEN 'amq.headers' THEN 'headers'
                WHEN 'amq.match' THEN 'headers'
            END;
            IF current_kind IS NULL THEN
                CONTINUE WHEN current_name <> exchange;  -- it was deleted, or is not there yet
                RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
                    quote_literal(exchange), quote_nullable(vhost)
                    USING ERRCODE = 'undefined_object', HINT = 'See howdah.exchange.';
            END IF;
        END IF;
        is_matched := false;
        FOR bound IN
            SELECT b.destination_kind, b.destination, b.routing_key AS pattern
            FROM howdah.binding b
            WHERE b.vhost = routed_queues.vhost AND b.source = current_name
              AND CASE current_kind
                  WHEN 'direct' THEN b.routing_key = routed_queues.routing_key
                  WHEN 'headers' THEN howdah.headers_match(headers, b.arguments)
                  WHEN 'topic' THEN
                      howdah.key_matches(routed_queues.routing_key, b.routing_key)
                      -- Only the topic space hides $ topics from wildcards in front.
                      AND NOT (current_name = 'amq.topic' AND left(routed_queues.routing_key, 1) = '$'
                               AND split_part(b.routing_key, '.', 1) IN ('*', '#'))
                  ELSE true
              END
            UNION ALL
            SELECT 'queue', q.name, q.name FROM howdah.queue q
            WHERE current_kind = 'default' AND q.vhost = routed_queues.vhost
              AND q.name = routed_queues.routing_key
            UNION ALL
            SELECT 'queue', s.queue_name, f.filter
            FROM howdah.session s JOIN howdah.subscription f ON f.session_id = s.id
            WHERE current_name = 'amq.topic' AND s.vhost = routed_queues.vhost
              AND f.filter NOT LIKE '$share/%' AND f.filter NOT LIKE '$queue/%'
              AND howdah.topic_matches(howdah.slashed(routed_queues.routing_key), f.filter)
        LOOP
            is_matched := true;
            IF bound.destination_kind = 'exchange' THEN
                IF bound.destination <> ALL (seen) THEN
                    seen := seen || bound.destination;
                    pending := pending || bound.destination;
                END IF;
            ELSE
                queue := bound.destination;
                source := current_name;
                pattern := bound.pattern;
                is_one_of_several := current_kind LIKE 'x-%hash' OR current_kind LIKE 'x-%random';
                RETURN NEXT;
            END IF;
        END LOOP;
        IF NOT is_matched AND alternate IS NOT NULL AND alternate <> ALL (seen) THEN
            seen := seen || alternate;
            pending := pending || alternate;
        END IF;
    END LOOP;
END
$function$;

-- The oldest unsettled messages of a queue, from an offset on if one is given; of a stream, the oldest
-- that it keeps. Changes nothing.
CREATE FUNCTION howdah.peek(
    queue text,
    "limit" integer DEFAULT 10,
    from_offset bigint DEFAULT NULL,
    vhost text DEFAULT '/'
) RETURNS TABLE (
    "offset" bigint,
    enqueued_at timestamptz,
    delivery_count integer,
    exchange text,
    routing_key text,
    priority smallint,
    expires_at timestamptz,
    not_before timestamptz,
    content_type text,
    content_encoding text,
    message_id text,
    correlation_id text,
    reply_to text,
    headers jsonb,
    publisher text,
    protocol text,
    deaths jsonb,
    body bytea
)
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    target howdah.queue;
    unsettled int8multirange := int8multirange(int8range(coalesce(from_offset, 0), NULL));
    span int8range;
    current_generation integer;
    retired integer[];
    missing integer := "limit";
    found_rows bigint;
BEGIN
    IF "limit" IS NULL OR "limit" < 0 THEN
        RAISE EXCEPTION 'limit must be 0 or more' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO target FROM howdah.queue q WHERE q.vhost = peek.vhost AND q.name = peek.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    current_generation := howdah.generation_of(target.id);
    retired := howdah.left_segments(target.id);
    IF target.kind = 'classic' THEN
        SELECT unsettled * int8multirange(int8range(s.floor, NULL)) - s.acked INTO unsettled
        FROM howdah.settlement_state s WHERE s.queue_id = target.id;
    END IF;
    -- One range of the primary key after the other, until there is enough.
    FOR span IN SELECT unnest(unsettled) LOOP
        EXIT WHEN missing <= 0;
        RETURN QUERY
            SELECT
                m."offset", m.enqueued_at, coalesce(d.count, 0), m.exchange, m.routing_key,
                m.priority, m.expires_at,
                CASE WHEN d.count IS NULL THEN m.not_before ELSE d.not_before END,
                m.content_type, m.content_encoding, m.message_id, m.correlation_id, m.reply_to,
                m.headers, m.publisher, howdah.protocol_name(m.form), m.deaths,
                CASE WHEN m.body_id IS NULL THEN m.body ELSE (
                    SELECT b.body FROM howdah.message_body b
                    WHERE b.id = m.body_id AND b.segment_id = m.segment_id
                ) END
            FROM howdah.message m
            LEFT JOIN LATERAL (
                SELECT f.count, f.not_before
                FROM howdah.redelivery f
                WHERE f.generation = current_generation
                  AND f.queue_id = m.queue_id AND f."offset" = m."offset"
                ORDER BY f.count DESC LIMIT 1
            ) d ON true
            WHERE m.queue_id = target.id AND m."offset" >= lower(span)
              AND m."offset" < coalesce(upper(span), 9223372036854775807)
              AND m.segment_id <> ALL (retired)
            ORDER BY m."offset"
            LIMIT missing;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        missing := missing - found_rows;
    END LOOP;
END
$function$;

-- Asks the gateway for something. Internal: call purge(), redrive(), delete_queue(), declare_queue(),
-- bind(), unbind(), reset_group() or end_session().
CREATE FUNCTION howdah.submit_command(kind text, vhost text, queue text, argument jsonb) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    target howdah.queue;
    is_nothing CONSTANT boolean := kind = 'redrive' AND argument ->> 'offsets' = '{}';
    submitted bigint;
BEGIN
    IF kind IS NULL OR kind <> ALL (ARRAY[
        'purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind', 'reset_group',
        'end_session'
    ]) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind(), '
                         'unbind(), reset_group() or end_session().';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = submit_command.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = submit_command.vhost AND q.name = submit_command.queue;
    IF NOT FOUND AND kind <> 'declare_queue' AND NOT howdah.is_declared(vhost, queue) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (
        kind, vhost, queue, argument, requested_by, requested_at, done_at, result)
    VALUES (
        submit_command.kind, submit_command.vhost, submit_command.queue,
        -- The number, so that a queue of the same name made since is left alone.
        argument || jsonb_strip_nulls(jsonb_build_object('queue_id', target.id)),
        session_user,
        -- Not now(): it stands between the messages of the same transaction.
        clock_timestamp(),
        CASE WHEN is_nothing THEN now() END, CASE WHEN is_nothing THEN '{"moved": 0}'::jsonb END
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;

-- Sends dead letters that lie in a queue back to the queues they died in. The predicate is an SQL
-- condition on the columns of ready_messages and of dead_letters. Returns the number of a command; see
-- command_status().
CREATE FUNCTION howdah.redrive(queue text, predicate text DEFAULT 'true', vhost text DEFAULT '/') RETURNS bigint
LANGUAGE plpgsql
SET jit TO 'off'
AS $function$
DECLARE
    offsets int8multirange;
BEGIN
    IF predicate IS NULL OR predicate ~ '^\s*$' THEN
        RAISE EXCEPTION 'the predicate is empty'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to take them all.';
    END IF;
    -- The predicate is the caller's own SQL, so it runs with the caller's rights and no others.
    EXECUTE format(
        $query$
            SELECT range_agg(int8range(r."offset", r."offset", '[]'))
            FROM (
                SELECT m.*, d.died_in, d.reason, d.died_at, d.deaths_in_all,
                       howdah.failure_text(m.headers) AS failure
                FROM howdah.ready_messages m
                CROSS JOIN LATERAL (
                    SELECT
                        m.deaths -> 0 ->> 'queue' AS died_in,
                        m.deaths -> 0 ->> 'reason' AS reason,
                        to_timestamp((m.deaths -> 0 ->> 'time')::double precision) AS died_at,
                        (SELECT sum(coalesce((e.death ->> 'count')::bigint, 1))
                         FROM jsonb_array_elements(m.deaths) AS e(death)) AS deaths_in_all
                ) d
                WHERE m.vhost = $1 AND m.queue = $2 AND m.deaths IS NOT NULL
            ) r
            WHERE (%s
            )
        $query$, predicate)
    INTO offsets USING vhost, queue;
    RETURN howdah.submit_command(
        'redrive', vhost, queue,
        jsonb_build_object('offsets', coalesce(offsets, '{}')::text, 'predicate', predicate));
END
$function$;

-- Throws away all messages of a queue that no consumer has in flight. Returns the number of a command;
-- see command_status().
CREATE FUNCTION howdah.purge(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_command('purge', vhost, queue, '{}')
$function$;

-- Deletes a queue with all that is in it; only if it has no consumers or no messages, where asked for.
-- Returns the number of a command; see command_status().
CREATE FUNCTION howdah.delete_queue(
    queue text,
    vhost text DEFAULT '/',
    if_unused boolean DEFAULT false,
    if_empty boolean DEFAULT false
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_command(
        'delete_queue', vhost, queue,
        jsonb_build_object('if_unused', if_unused, 'if_empty', if_empty))
$function$;

-- Declares a durable queue, with the arguments that AMQP clients give, such as x-queue-type. Returns
-- the number of a command; see command_status().
CREATE FUNCTION howdah.declare_queue(
    queue text,
    arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql
AS $function$
BEGIN
    IF queue IS NULL OR queue = '' OR octet_length(queue) > 255 THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 255 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'arguments must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For example ''{"x-queue-type": "stream"}''.';
    END IF;
    RETURN howdah.submit_command(
        'declare_queue', vhost, queue, jsonb_build_object('arguments', arguments));
END
$function$;

-- Sends a consumer group of a stream that nobody reads by to another place: first, last, next, an
-- offset or a time. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.reset_group(
    queue text,
    group_name text,
    "position" text DEFAULT 'first',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
DECLARE
    place jsonb;
    moment timestamptz;
BEGIN
    IF EXISTS (
        SELECT FROM howdah.queue q
        WHERE q.vhost = reset_group.vhost AND q.name = reset_group.queue AND q.kind <> 'stream'
    ) THEN
        RAISE EXCEPTION 'queue % in virtual host % is no stream: it has no consumer groups',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'wrong_object_type',
                  HINT = 'What a queue has settled is gone: redrive() brings dead letters back, and '
                         'purge() drops what waits. To read again, declare a stream: '
                         'declare_queue(..., ''{"x-queue-type": "stream"}'').';
    END IF;
    IF NOT EXISTS (
        SELECT FROM howdah.settlement_state s
        WHERE s.vhost = reset_group.vhost AND s.queue = reset_group.queue
          AND s.kind = 'stream' AND s.group_name = reset_group.group_name
    ) THEN
        RAISE EXCEPTION 'stream % in virtual host % has no consumer group %',
            quote_nullable(queue), quote_nullable(vhost), quote_nullable(group_name)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.consumer_lag.';
    END IF;
    IF "position" IN ('first', 'last', 'next') THEN
        place := jsonb_build_object('name', "position");
    ELSIF "position" ~ '^[0-9]{1,18}$' THEN
        place := jsonb_build_object('offset', "position"::bigint);
    ELSE
        BEGIN
            moment := "position"::timestamptz;
        EXCEPTION
            WHEN data_exception THEN NULL;  -- said below
        END;
        IF moment IS NULL OR NOT isfinite(moment) THEN
            RAISE EXCEPTION '% is no place in a stream', quote_nullable("position")
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Give first, last, next, an offset, or a time such as '
                             '2026-01-31 12:00+00.';
        END IF;
        place := jsonb_build_object('time', extract(epoch FROM moment));
    END IF;
    RETURN howdah.submit_command(
        'reset_group', vhost, queue, place || jsonb_build_object('group', group_name));
END
$function$;

-- Ends an MQTT session with its subscriptions and all that waits for it, and disconnects its client.
-- Returns the number of a command; see command_status().
CREATE FUNCTION howdah.end_session(client_id text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    queue_name text;
BEGIN
    SELECT s.queue_name INTO queue_name FROM howdah.session s
    WHERE s.vhost = end_session.vhost AND s.client_id = end_session.client_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no stored session % in virtual host %',
            quote_nullable(client_id), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object',
                  HINT = 'See howdah.session_status. A session that ends with its connection is in '
                         'the gateway''s memory only.';
    END IF;
    RETURN howdah.submit_command(
        'end_session', vhost, queue_name, jsonb_build_object('client_id', client_id));
END
$function$;

-- Asks the gateway for a binding. Internal: call bind(), bind_topic() or their opposites.
CREATE FUNCTION howdah.submit_binding(
    kind text,
    queue text,
    routing_key text,
    exchange text,
    arguments jsonb,
    vhost text
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF routing_key IS NULL OR octet_length(routing_key) > 65535 THEN
        RAISE EXCEPTION 'routing_key must be a text of at most 65535 bytes'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For none, write ''''.';
    END IF;
    IF jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'arguments must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For a headers exchange, for example ''{"x-match": "any", "a": 1}''.';
    END IF;
    IF exchange IS NULL OR exchange = '' THEN
        RAISE EXCEPTION 'the default exchange has one binding for each queue, and no others'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another exchange.';
    END IF;
    IF exchange NOT LIKE 'amq.%' AND NOT EXISTS (
        SELECT FROM howdah.exchange e
        WHERE e.vhost = submit_binding.vhost AND e.name = submit_binding.exchange
    ) THEN
        RAISE EXCEPTION 'there is no durable exchange % in virtual host %',
            quote_literal(exchange), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Declare it first.';
    END IF;
    RETURN howdah.submit_command(
        kind, vhost, queue,
        jsonb_build_object(
            'exchange', exchange, 'routing_key', routing_key, 'arguments', arguments));
END
$function$;

-- Binds a durable queue or stream to an exchange, as AMQP clients do. Returns the number of a command;
-- see command_status().
CREATE FUNCTION howdah.bind(
    queue text,
    routing_key text,
    exchange text DEFAULT 'amq.topic',
    arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_binding('bind', queue, routing_key, exchange, arguments, vhost)
$function$;

-- Takes a binding away. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.unbind(
    queue text,
    routing_key text,
    exchange text DEFAULT 'amq.topic',
    arguments jsonb DEFAULT '{}',
    vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_binding('unbind', queue, routing_key, exchange, arguments, vhost)
$function$;

-- Has a durable queue or stream take every message whose topic matches an MQTT filter, such as
-- plant/+/temperature. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.bind_topic(queue text, topic_filter text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.bind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;

-- The opposite of bind_topic(). Returns the number of a command; see command_status().
CREATE FUNCTION howdah.unbind_topic(queue text, topic_filter text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.unbind(queue, howdah.filter_key(topic_filter), vhost => vhost)
$function$;

-- Asks the gateway to pause or resume a queue. Internal: call pause_queue() or resume_queue().
CREATE FUNCTION howdah.submit_pause(kind text, queue text, vhost text) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    submitted bigint;
BEGIN
    IF kind IS NULL OR kind NOT IN ('pause_queue', 'resume_queue') THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use pause_queue() or resume_queue().';
    END IF;
    IF NOT EXISTS (
        SELECT FROM howdah.queue q
        WHERE q.vhost = submit_pause.vhost AND q.name = submit_pause.queue
    ) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, requested_at)
    VALUES (
        submit_pause.kind, submit_pause.vhost, submit_pause.queue, '{}', session_user,
        clock_timestamp()
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;

-- Stops deliveries from a durable queue or stream, over restarts, until resume_queue(). Messages still
-- come in. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.pause_queue(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_pause('pause_queue', queue, vhost)
$function$;

-- Lets deliveries from a paused queue go on. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.resume_queue(queue text, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT howdah.submit_pause('resume_queue', queue, vhost)
$function$;

-- Makes the exchanges, queues and bindings of a definitions file of one virtual host, as RabbitMQ
-- exports it. Returns the number of a command; see command_status().
CREATE FUNCTION howdah.import_definitions(definitions jsonb, vhost text DEFAULT '/') RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    submitted bigint;
BEGIN
    IF jsonb_typeof(definitions) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'definitions must be a JSON object'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'With the lists exchanges, queues and bindings, as RabbitMQ exports them.';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = import_definitions.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, requested_at)
    VALUES (
        'import_definitions', import_definitions.vhost, '',
        jsonb_build_object(
            'exchanges', coalesce(definitions -> 'exchanges', '[]'),
            'queues', coalesce(definitions -> 'queues', '[]'),
            'bindings', coalesce(definitions -> 'bindings', '[]')),
        session_user, clock_timestamp()
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;

-- What became of a command: waiting, done or failed.
CREATE FUNCTION howdah.command_status(id bigint) RETURNS TABLE (
    kind text,
    vhost text,
    queue text,
    state text,
    requested_by text,
    requested_at timestamptz,
    done_at timestamptz,
    result jsonb,
    error text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT
            c.kind, c.vhost, c.queue,
            CASE WHEN c.done_at IS NULL THEN 'waiting' WHEN c.error IS NULL THEN 'done'
                 ELSE 'failed' END,
            c.requested_by, c.requested_at, c.done_at, c.result, c.error
        FROM howdah.command c WHERE c.id = command_status.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no command %', id
            USING ERRCODE = 'undefined_object',
                  HINT = 'The gateway forgets commands some time after they are done.';
    END IF;
END
$function$;

-- Partitions that should be there and are not: somebody dropped, detached or renamed them (then
-- stands_in says what they are called now).
CREATE FUNCTION howdah.torn_tables() RETURNS TABLE (missing text, parent text, number integer, stands_in text)
LANGUAGE sql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT format('%s_%s', w.parent, w.number), w.parent, w.number, c.relname::text
    FROM (
        SELECT t.parent, s.id AS number
        FROM howdah.segment s CROSS JOIN (VALUES ('message'), ('message_body')) AS t (parent)
        UNION ALL
        SELECT t.parent, g.generation
        FROM (SELECT DISTINCT s.generation FROM howdah.shard s) g
        CROSS JOIN (
            VALUES ('settlement'), ('redelivery'), ('deduplication'), ('packet'), ('commit_mark')
        ) AS t (parent)
    ) w
    LEFT JOIN (pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid)
        ON i.inhparent = to_regclass(format('howdah.%I', w.parent))
       AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%s)', w.number)
    WHERE c.relname IS DISTINCT FROM format('%s_%s', w.parent, w.number)
    ORDER BY w.parent, w.number
$function$;

-- Offsets that count as messages and have none, and that howdah.loss does not know of: phantoms of
-- classic queues, holes in streams. Reads the index of every message.
CREATE FUNCTION howdah.find_gaps() RETURNS TABLE (
    vhost text,
    queue text,
    queue_id bigint,
    kind text,
    first_offset bigint,
    end_offset bigint
)
LANGUAGE plpgsql
STABLE SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
SET jit TO 'off'
AS $function$
DECLARE
    each record;
    known int8multirange;
    held int8multirange;
    settled int8multirange;
    start bigint;
    tail bigint;
    gap int8range;
BEGIN
    FOR each IN
        SELECT q.id, q.vhost AS place, q.name, q.kind AS sort, e.noted, e.reserved
        FROM howdah.queue q LEFT JOIN howdah.log_end e ON e.queue_id = q.id
        ORDER BY q.vhost, q.name
    LOOP
        SELECT coalesce(range_agg(int8range(l.first_offset, l.end_offset)), '{}') INTO known
        FROM howdah.loss l WHERE l.queue_id = each.id AND l.first_offset < l.end_offset;
        settled := '{}';
        start := NULL;
        IF each.sort = 'classic' THEN
            SELECT s.acked + int8multirange(int8range(0, s.floor)), s.floor INTO settled, start
            FROM howdah.settlement_state s WHERE s.queue_id = each.id;
        END IF;
        -- Runs of offsets: what is numbered without a hole has one difference.
        SELECT coalesce(range_agg(int8range(r.low, r.high + 1)), '{}') INTO held
        FROM (
            SELECT min(n.o) AS low, max(n.o) AS high
            FROM (
                SELECT m."offset" AS o, m."offset" - dense_rank() OVER (ORDER BY m."offset") AS island
                FROM howdah.message m WHERE m.queue_id = each.id
            ) n GROUP BY n.island
        ) r;
        start := coalesce(start, lower(held), 0);
        tail := greatest(upper(held), upper(settled), upper(known), start);
        IF tail < each.noted THEN
            tail := each.reserved;
        END IF;
        FOR gap IN
            SELECT g.span
            FROM unnest(int8multirange(int8range(start, tail)) - held - settled - known) AS g (span)
        LOOP
            vhost := each.place;
            queue := each.name;
            queue_id := each.id;
            kind := each.sort;
            first_offset := lower(gap);
            end_offset := upper(gap);
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$function$;

-- Puts one partition of torn_tables() right: by its name, its place, or without what was in it.
-- Internal.
CREATE FUNCTION howdah.mend_table(p_parent text, p_number integer, p_stands_in text) RETURNS void
LANGUAGE plpgsql
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    leaf CONSTANT name := format('%s_%s', p_parent, p_number);
BEGIN
    IF p_stands_in IS NOT NULL THEN
        EXECUTE format('ALTER TABLE howdah.%I RENAME TO %I', p_stands_in, leaf);
    ELSIF to_regclass(format('howdah.%I', leaf)) IS NOT NULL THEN
        EXECUTE format(
            'ALTER TABLE howdah.%I ATTACH PARTITION howdah.%I FOR VALUES IN (%s)',
            p_parent, leaf, p_number);
    ELSIF p_parent = 'message' THEN
        -- What was in it is given up, and the segment with it; the gateway opens another.
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_body_%s', p_number));
        DELETE FROM howdah.segment s WHERE s.id = p_number;
    ELSIF p_parent = 'message_body' THEN
        IF to_regclass(format('howdah.message_%s', p_number)) IS NOT NULL THEN
            EXECUTE format(
                'DELETE FROM howdah.%I WHERE body_id IS NOT NULL', format('message_%s', p_number));
            PERFORM howdah.attach_leaf('message_body', 'segment_id', p_number);
        END IF;
    ELSE
        PERFORM howdah.attach_generation(p_number);
    END IF;
END
$function$;

-- Puts partitions right that torn_tables() names, and notes in howdah.loss what find_gaps() finds, so
-- that it counts as messages no more. With the gateway stopped; returns what it noted.
CREATE FUNCTION howdah.repair() RETURNS SETOF howdah.loss
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    torn record;
BEGIN
    -- The lock of the gateway that owns the database: it has all this in memory.
    IF NOT pg_try_advisory_xact_lock(114827953725800) THEN
        RAISE EXCEPTION 'a gateway owns this database: %',
            (SELECT format('%s, since %s', g.node, g.started_at) FROM howdah.gateway g)
            USING ERRCODE = 'object_in_use', HINT = 'Stop it, repair, and start it again.';
    END IF;
    -- The journal's row of a generation is made once for all four tables; message before message_body.
    FOR torn IN SELECT * FROM howdah.torn_tables() LOOP
        IF EXISTS (SELECT FROM howdah.torn_tables() t WHERE t.missing = torn.missing) THEN
            PERFORM howdah.mend_table(torn.parent, torn.number, torn.stands_in);
        END IF;
    END LOOP;
    RETURN QUERY
    INSERT INTO howdah.loss (cause, vhost, queue, queue_id, first_offset, end_offset, detail)
    SELECT 'repair', f.vhost, f.queue, f.queue_id, f.first_offset, f.end_offset,
           format('up to %s messages have no row', f.end_offset - f.first_offset)
    FROM howdah.find_gaps() f
    RETURNING *;
END
$function$;

-- True, and stays so until this transaction ends, for a node that serves, by its id and start; an
-- error (HW001) for every other. Leaves the mark of this commit, if it has a number. For the gateway.
CREATE FUNCTION howdah.hold(
    p_node integer,
    p_started_at timestamptz,
    p_generation integer,
    p_number bigint,
    p_messages bigint
) RETURNS boolean
LANGUAGE plpgsql
AS $function$
BEGIN
    -- First the lock, then the look, which sees all that was committed before the lock was free: whoever
    -- fences a node writes that it is gone, and holds this lock alone for a moment after that or meanwhile.
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(1752135524, p_node);
    IF p_number IS NULL THEN
        PERFORM FROM howdah.node n
        WHERE n.id = p_node AND n.started_at = p_started_at AND n.state IN ('up', 'leaving');
    ELSE
        -- The generation is the gateway's word: one that is looked up may be seen before its partitions.
        INSERT INTO howdah.commit_mark (generation, number, messages)
        SELECT p_generation, p_number, p_messages
        FROM howdah.node n
        WHERE n.id = p_node AND n.started_at = p_started_at AND n.state IN ('up', 'leaving');
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another gateway has taken over this database'
            USING ERRCODE = 'HW001', HINT = 'See howdah.node for which one it is.';
    END IF;
    RETURN true;
END
$function$;

-- Has the node of that name that serves end its work in order, so that a standby takes over; it then
-- stands by itself. Returns its id.
CREATE FUNCTION howdah.drain_node(node_name text) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    target howdah.node;
BEGIN
    -- The caller's transaction may not stay open: beats and takeovers would wait for it.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM pg_advisory_xact_lock(1752135524, 0);  -- nobody rises or is fenced meanwhile
    SELECT * INTO target FROM howdah.node n
    WHERE n.name = node_name AND n.state <> 'gone'
    ORDER BY n.state = 'joining', n.id DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no node % that lives', quote_nullable(node_name)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.node, or howdah node list.';
    ELSIF target.cluster IS NULL THEN
        RAISE EXCEPTION 'gateway % is in no cluster', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Stop it, or start it with cluster.enabled: true.';
    ELSIF target.state = 'joining' THEN
        RAISE EXCEPTION 'node % stands by: it has nothing to hand over', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'It may be stopped as it is.';
    ELSIF NOT EXISTS (
        SELECT FROM howdah.node n JOIN pg_locks l ON l.objid = n.id::oid
        WHERE n.state = 'joining' AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.classid = 1752135524::oid
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ) THEN
        RAISE EXCEPTION 'no other node stands by to take over from %', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Start another gateway with cluster.enabled: true and the same database.';
    END IF;
    UPDATE howdah.node n SET state = 'leaving' WHERE n.id = target.id;
    RETURN target.id;
END
$function$;

-- Notes how far a Spark job has come; it only ever goes forward. For the jobs.
CREATE FUNCTION howdah.note_checkpoint(
    p_job text,
    p_target text,
    p_queue_id bigint,
    p_offset bigint,
    p_messages bigint
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF p_job NOT IN ('export', 'replay') THEN
        RAISE EXCEPTION 'there is no job %', quote_literal(p_job)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Jobs are export and replay.';
    END IF;
    INSERT INTO howdah.etl_checkpoint AS c (job, target, queue_id, "offset", messages, changed_by)
    VALUES (p_job, p_target, p_queue_id, p_offset, p_messages, session_user)
    ON CONFLICT (job, target, queue_id) DO UPDATE
    SET "offset" = EXCLUDED."offset", messages = EXCLUDED.messages, changed_at = now(),
        changed_by = EXCLUDED.changed_by
    -- Said again after a crash it changes nothing, and no job goes back.
    WHERE c."offset" < EXCLUDED."offset";
END
$function$;

-- Whether a value is a whole number, not below the least. Internal.
CREATE FUNCTION howdah.is_whole(value jsonb, lowest bigint) RETURNS boolean
LANGUAGE sql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN jsonb_typeof(value) = 'number'
                THEN (value #>> '{}')::numeric >= lowest AND (value #>> '{}')::numeric % 1 = 0
                ELSE false END
$function$;

-- Refuses the definition of a policy that has an unknown key or a value that cannot be. Internal.
CREATE FUNCTION howdah.check_policy(definition jsonb, operator boolean) RETURNS void
LANGUAGE plpgsql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    operator_keys CONSTANT text[] := ARRAY[
        'expires', 'message-ttl', 'max-length', 'max-length-bytes', 'max-in-memory-length',
        'max-in-memory-bytes', 'delivery-limit', 'overflow', 'queue-version', 'target-group-size'];
    acting CONSTANT text[] := ARRAY[
        'message-ttl', 'expires', 'max-length', 'max-length-bytes', 'overflow',
        'dead-letter-exchange', 'dead-letter-routing-key', 'delivery-limit', 'max-age',
        'stream-max-segment-size-bytes', 'consumer-timeout', 'alternate-exchange'];
    inert CONSTANT text[] := ARRAY[
        'ha-mode', 'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
        'ha-promote-on-failure', 'queue-mode', 'queue-version', 'queue-leader-locator',
        'queue-master-locator', 'initial-cluster-size', 'target-group-size', 'max-in-memory-length',
        'max-in-memory-bytes', 'dead-letter-strategy', 'stream-filter-size-bytes'];
    given record;
BEGIN
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' OR definition = '{}' THEN
        RAISE EXCEPTION 'the definition of a policy is an object with at least one key'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For example ''{"max-length": 1000}''.';
    END IF;
    FOR given IN SELECT d.key, d.value FROM jsonb_each(definition) d LOOP
        IF given.key <> ALL (acting || inert) THEN
            RAISE EXCEPTION 'key % cannot be in a policy', quote_literal(given.key)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Use ' || array_to_string(acting, ', ') || '.';
        END IF;
        IF operator AND given.key <> ALL (operator_keys) THEN
            RAISE EXCEPTION 'key % is for ordinary policies', quote_literal(given.key)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'An operator policy may have ' || array_to_string(operator_keys, ', ') || '.';
        END IF;
        IF NOT (CASE
            WHEN given.key IN (
                'message-ttl', 'max-length', 'max-length-bytes', 'stream-max-segment-size-bytes')
                THEN howdah.is_whole(given.value, 0)
            WHEN given.key = 'expires' THEN howdah.is_whole(given.value, 1)
            WHEN given.key = 'delivery-limit' THEN howdah.is_whole(given.value, -1)
            WHEN given.key = 'consumer-timeout' THEN howdah.is_whole(given.value, 1000)
            WHEN given.key = 'overflow' THEN coalesce(
                given.value #>> '{}' IN ('drop-head', 'reject-publish', 'reject-publish-dlx'), false)
            WHEN given.key = 'max-age'
                THEN coalesce(given.value #>> '{}' ~ '^[0-9]+[YMDhms]$', false) AND length(given.value #>> '{}') <= 301
            WHEN given.key IN (
                'dead-letter-exchange', 'dead-letter-routing-key', 'alternate-exchange')
                THEN jsonb_typeof(given.value) = 'string'
            ELSE true
        END) THEN
            RAISE EXCEPTION 'key % of a policy cannot be %', quote_literal(given.key), given.value
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Times are whole milliseconds, limits whole numbers, max-age is like 7D.';
        END IF;
    END LOOP;
END
$function$;

-- Raises an error where there is no virtual host of that name. Internal.
CREATE FUNCTION howdah.require_vhost(vhost text) RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = require_vhost.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
END
$function$;

-- Makes a policy, or replaces the one of that name: values for the queues and exchanges whose names
-- match a regular expression. With operator, an operator policy. Acts at once.
CREATE FUNCTION howdah.set_policy(
    name text,
    pattern text,
    definition jsonb,
    apply_to text DEFAULT 'all',
    priority integer DEFAULT 0,
    vhost text DEFAULT '/',
    operator boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    IF set_policy.name IS NULL OR octet_length(set_policy.name) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'the name of a policy has 1 to 255 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF set_policy.pattern IS NULL OR length(set_policy.pattern) > 2000 THEN
        RAISE EXCEPTION 'the pattern of a policy has up to 2000 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM '' ~ set_policy.pattern;  -- or an error that says what is wrong with it
    PERFORM howdah.check_policy(set_policy.definition, set_policy.operator);
    PERFORM howdah.require_vhost(set_policy.vhost);
    INSERT INTO howdah.policy AS p
        (vhost, name, is_operator, pattern, apply_to, priority, definition)
    VALUES (
        set_policy.vhost, set_policy.name, set_policy.operator, set_policy.pattern,
        set_policy.apply_to, set_policy.priority, set_policy.definition)
    ON CONFLICT (vhost, name, is_operator) DO UPDATE
    SET pattern = excluded.pattern, apply_to = excluded.apply_to, priority = excluded.priority,
        definition = excluded.definition, changed_at = now();
END
$function$;

-- Removes a policy, or with operator an operator policy; false: there was none of that name.
CREATE FUNCTION howdah.clear_policy(
    name text,
    vhost text DEFAULT '/',
    operator boolean DEFAULT false
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM howdah.policy p
    WHERE p.vhost = clear_policy.vhost AND p.name = clear_policy.name
      AND p.is_operator = clear_policy.operator;
    RETURN FOUND;
END
$function$;

-- Limits a virtual host: max-connections or max-queues. Null or a negative number: no limit. What is
-- there already stays.
CREATE FUNCTION howdah.set_vhost_limit("limit" text, value integer, vhost text DEFAULT '/') RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF "limit" IS NULL OR "limit" NOT IN ('max-connections', 'max-queues') THEN
        RAISE EXCEPTION 'virtual hosts have no limit %', quote_nullable("limit")
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use max-connections or max-queues.';
    END IF;
    PERFORM howdah.require_vhost(vhost);
    UPDATE howdah.vhost v
    SET max_connections = CASE "limit" WHEN 'max-connections' THEN value ELSE v.max_connections END,
        max_queues = CASE "limit" WHEN 'max-queues' THEN value ELSE v.max_queues END
    WHERE v.name = set_vhost_limit.vhost;
END
$function$;

-- Limits a user: max-connections or max-channels. Null or a negative number: no limit. What is open
-- already stays open.
CREATE FUNCTION howdah.set_user_limit("user" text, "limit" text, value integer) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF "limit" IS NULL OR "limit" NOT IN ('max-connections', 'max-channels') THEN
        RAISE EXCEPTION 'users have no limit %', quote_nullable("limit")
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use max-connections or max-channels.';
    END IF;
    UPDATE howdah."user" u
    SET max_connections = CASE "limit" WHEN 'max-connections' THEN value ELSE u.max_connections END,
        max_channels = CASE "limit" WHEN 'max-channels' THEN value ELSE u.max_channels END
    WHERE u.name = set_user_limit."user";
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no user %', quote_nullable("user")
            USING ERRCODE = 'undefined_object', HINT = 'Make it first with `howdah user add`.';
    END IF;
END
$function$;

-- Changes what is said of a virtual host, and the type of queues that are declared there without one;
-- what is null stays as it is.
CREATE FUNCTION howdah.describe_vhost(
    vhost text,
    description text DEFAULT NULL,
    tags text[] DEFAULT NULL,
    default_queue_type text DEFAULT NULL,
    metadata jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM howdah.require_vhost(vhost);
    UPDATE howdah.vhost v
    SET description = coalesce(describe_vhost.description, v.description),
        tags = coalesce(describe_vhost.tags, v.tags),
        default_queue_type = coalesce(describe_vhost.default_queue_type, v.default_queue_type),
        metadata = coalesce(describe_vhost.metadata, v.metadata)
    WHERE v.name = describe_vhost.vhost;
END
$function$;

-- Keeps a parameter of a virtual host, for tools that set and read it.
CREATE FUNCTION howdah.set_parameter(component text, name text, value jsonb, vhost text DEFAULT '/') RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM howdah.require_vhost(set_parameter.vhost);
    INSERT INTO howdah.parameter (component, vhost, name, value)
    VALUES (set_parameter.component, set_parameter.vhost, set_parameter.name, set_parameter.value)
    ON CONFLICT (component, vhost, name) DO UPDATE SET value = excluded.value;
END
$function$;

-- Removes a parameter of a virtual host; false: there was none of that name.
CREATE FUNCTION howdah.clear_parameter(component text, name text, vhost text DEFAULT '/') RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM howdah.parameter p
    WHERE p.component = clear_parameter.component AND p.vhost = clear_parameter.vhost
      AND p.name = clear_parameter.name;
    RETURN FOUND;
END
$function$;

-- Keeps a parameter of all virtual hosts, for tools that set and read it.
CREATE FUNCTION howdah.set_global_parameter(name text, value jsonb) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    INSERT INTO howdah.global_parameter (name, value)
    VALUES (set_global_parameter.name, set_global_parameter.value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
END
$function$;

-- Removes a parameter of all virtual hosts; false: there was none of that name.
CREATE FUNCTION howdah.clear_global_parameter(name text) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM howdah.global_parameter p WHERE p.name = clear_global_parameter.name;
    RETURN FOUND;
END
$function$;

-- Whether a pattern is found in a name; null: it cannot be read here. Internal.
CREATE FUNCTION howdah.name_matches(name text, pattern text) RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN name ~ pattern;
EXCEPTION
    WHEN invalid_regular_expression THEN
        RETURN NULL;  -- the gateway's dialect has some signs that PostgreSQL's has not
END
$function$;

-- Keys with which a policy is not for queues of a type. Internal.
CREATE FUNCTION howdah.unsupported_keys(family text, apply_to text) RETURNS text[]
LANGUAGE sql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE family
        WHEN 'streams' THEN ARRAY[
            'ha-mode', 'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
            'ha-promote-on-failure', 'queue-mode', 'queue-master-locator', 'expires', 'message-ttl',
            'dead-letter-exchange', 'dead-letter-routing-key', 'max-in-memory-length',
            'max-in-memory-bytes', 'overflow', 'delivery-limit', 'dead-letter-strategy',
            'target-group-size']
            || CASE WHEN apply_to = family THEN '{}' ELSE '{max-length}' END::text[]
        WHEN 'quorum_queues' THEN ARRAY[
            'max-age', 'stream-max-segment-size-bytes', 'initial-cluster-size', 'ha-mode',
            'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
            'ha-promote-on-failure', 'queue-mode', 'queue-master-locator']
        ELSE ARRAY[
            'max-age', 'stream-max-segment-size-bytes', 'initial-cluster-size',
            'dead-letter-strategy', 'target-group-size']
            || CASE WHEN apply_to = family THEN '{}' ELSE '{delivery-limit}' END::text[]
    END
$function$;

-- A number or an age such as 7D, to find the smaller of two limits by. Internal.
CREATE FUNCTION howdah.limit_rank(value jsonb) RETURNS numeric
LANGUAGE sql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN jsonb_typeof(value) = 'number' AND (value #>> '{}')::numeric < 0 THEN 'infinity'::numeric
        WHEN jsonb_typeof(value) = 'number' THEN (value #>> '{}')::numeric
        ELSE left(value #>> '{}', -1)::numeric * CASE right(value #>> '{}', 1)
            WHEN 'Y' THEN 31536000 WHEN 'M' THEN 2592000 WHEN 'D' THEN 86400
            WHEN 'h' THEN 3600 WHEN 'm' THEN 60 ELSE 1 END
    END
$function$;

-- Two sets of values as one: of the named keys the smaller value, of the others one side's. Internal.
CREATE FUNCTION howdah.merged_limits(mine jsonb, theirs jsonb, smaller text[], theirs_wins boolean) RETURNS jsonb
LANGUAGE sql
IMMUTABLE
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(jsonb_object_agg(k.key, CASE
        WHEN NOT mine ? k.key THEN theirs -> k.key
        WHEN NOT theirs ? k.key THEN mine -> k.key
        WHEN k.key = ANY (smaller) THEN CASE
            WHEN howdah.limit_rank(mine -> k.key) <= howdah.limit_rank(theirs -> k.key)
            THEN mine -> k.key ELSE theirs -> k.key END
        WHEN theirs_wins THEN theirs -> k.key
        ELSE mine -> k.key
    END), '{}')
    FROM (SELECT jsonb_object_keys(mine) AS key UNION SELECT jsonb_object_keys(theirs)) k
$function$;

-- Tells the gateway at commit that users, permissions or virtual hosts were changed.
CREATE FUNCTION howdah.announce_rights() RETURNS trigger
LANGUAGE plpgsql
SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pg_notify('howdah_rights', '');
    RETURN NULL;
END
$function$;

-- -------------------------------------------------------------------------------------------- triggers

CREATE TRIGGER announce_rights AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON howdah.vhost
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE TRIGGER announce_rights AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON howdah."user"
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE TRIGGER announce_rights AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON howdah.permission
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE TRIGGER announce_rights AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON howdah.topic_permission
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE TRIGGER announce_rights AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON howdah.policy
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();

-- ------------------------------------------------------------------------------------ roles and grants

CREATE ROLE howdah_gateway NOLOGIN;
CREATE ROLE howdah_operator NOLOGIN;
CREATE ROLE howdah_publisher NOLOGIN;
CREATE ROLE howdah_reader NOLOGIN;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA howdah FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.body_text(bytea),
    howdah.oldest_offset(bigint, uuid),
    howdah.newest_offset(bigint, uuid),
    howdah.enqueued_at(bigint, bigint, uuid),
    howdah.average_bytes(bigint, bigint, uuid),
    howdah.group_names(bigint, uuid),
    howdah.settled(bigint, text, uuid),
    howdah.unsettled_chunks(bigint, uuid),
    howdah.messages_between(bigint, bigint, bigint, uuid),
    howdah.delayed_count(bigint, uuid),
    howdah.is_served(),
    howdah.held_offsets(int8multirange[], timestamptz[]),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.topic_matches(text, text),
    howdah.name_matches(text, text),
    howdah.unsupported_keys(text, text),
    howdah.limit_rank(jsonb),
    howdah.merged_limits(jsonb, jsonb, text[], boolean)
    TO PUBLIC;

GRANT USAGE ON SCHEMA howdah TO howdah_gateway;
GRANT SELECT ON
    howdah.alembic_version,
    howdah.secret,
    howdah.segment,
    howdah.archive_mark,
    howdah.journal_generation,
    howdah.consumer_lag,
    howdah.session_status,
    howdah.session_subscriptions,
    howdah.retained_messages,
    howdah.etl_status,
    howdah.segment_status
    TO howdah_gateway;
GRANT SELECT, UPDATE ON howdah.gateway, howdah.shard TO howdah_gateway;
GRANT SELECT, INSERT, DELETE ON howdah.ownership, howdah.definitions_import TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    howdah.vhost,
    howdah."user",
    howdah.permission,
    howdah.topic_permission,
    howdah.exchange,
    howdah.queue,
    howdah.binding,
    howdah.session,
    howdah.subscription,
    howdah.will,
    howdah.retained,
    howdah.log_end,
    howdah.queue_activity,
    howdah.node,
    howdah.policy,
    howdah.parameter,
    howdah.global_parameter
    TO howdah_gateway;
GRANT SELECT, INSERT ON
    howdah.message,
    howdah.message_body,
    howdah.settlement,
    howdah.redelivery,
    howdah.deduplication,
    howdah.packet,
    howdah.commit_mark,
    howdah.loss
    TO howdah_gateway;
GRANT SELECT, UPDATE (waiting_for), DELETE ON howdah.outbox TO howdah_gateway;
GRANT SELECT, UPDATE (done_at, error, result), DELETE ON howdah.command TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON howdah.consumer TO howdah_gateway;
GRANT EXECUTE ON FUNCTION
    howdah.create_segment(bigint, integer),
    howdah.seal_segment(integer, bigint, bigint, timestamptz),
    howdah.retire_segment(integer),
    howdah.lock_segment(integer, integer),
    howdah.release_segment(integer, integer),
    howdah.adopt_segments(integer),
    howdah.open_generation(integer),
    howdah.unused_generations(),
    howdah.drop_generation(integer),
    howdah.browse(text, bigint, integer, boolean, boolean, text),
    howdah.offset_at(text, timestamptz, text),
    howdah.dead_letter_causes(text, bigint, integer, text),
    howdah.message_life(text, bigint, text),
    howdah.torn_tables(),
    howdah.hold(integer, timestamptz, integer, bigint, bigint)
    TO howdah_gateway;

GRANT USAGE ON SCHEMA howdah TO howdah_operator;
GRANT SELECT ON
    howdah.alembic_version,
    howdah.gateway,
    howdah.ownership,
    howdah.vhost,
    howdah.exchange,
    howdah.queue,
    howdah.binding,
    howdah.segment,
    howdah.commit_mark,
    howdah.log_end,
    howdah.loss,
    howdah.node,
    howdah.definitions_import,
    howdah.policy,
    howdah.shard,
    howdah.settlement_state,
    howdah.consumer_lag,
    howdah.queue_status,
    howdah.ready_messages,
    howdah.dead_letters,
    howdah.outbox_status,
    howdah.commands,
    howdah.consumer_status,
    howdah.in_flight,
    howdah.session_status,
    howdah.session_subscriptions,
    howdah.retained_messages,
    howdah.etl_status,
    howdah.segment_status,
    howdah.queue_policy
    TO howdah_operator;
GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.topic_key(text),
    howdah.filter_key(text),
    howdah.body_text(bytea),
    howdah.mark_archived(integer, text),
    howdah.keep_for_archive(text, text, boolean),
    howdah.publish(text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish(text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish(text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish_topic(text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_many(text, bytea[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(text, text[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(text, jsonb[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.wake(),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.browse(text, bigint, integer, boolean, boolean, text),
    howdah.offset_at(text, timestamptz, text),
    howdah.dead_letter_causes(text, bigint, integer, text),
    howdah.message_life(text, bigint, text),
    howdah.topic_matches(text, text),
    howdah.routed_queues(text, text, jsonb, text),
    howdah.peek(text, integer, bigint, text),
    howdah.submit_command(text, text, text, jsonb),
    howdah.redrive(text, text, text),
    howdah.purge(text, text),
    howdah.delete_queue(text, text, boolean, boolean),
    howdah.declare_queue(text, jsonb, text),
    howdah.reset_group(text, text, text, text),
    howdah.end_session(text, text),
    howdah.submit_binding(text, text, text, text, jsonb, text),
    howdah.bind(text, text, text, jsonb, text),
    howdah.unbind(text, text, text, jsonb, text),
    howdah.bind_topic(text, text, text),
    howdah.unbind_topic(text, text, text),
    howdah.submit_pause(text, text, text),
    howdah.pause_queue(text, text),
    howdah.resume_queue(text, text),
    howdah.import_definitions(jsonb, text),
    howdah.command_status(bigint),
    howdah.torn_tables(),
    howdah.find_gaps(),
    howdah.repair(),
    howdah.drain_node(text),
    howdah.set_policy(text, text, jsonb, text, integer, text, boolean),
    howdah.clear_policy(text, text, boolean),
    howdah.set_vhost_limit(text, integer, text),
    howdah.set_user_limit(text, text, integer),
    howdah.describe_vhost(text, text, text[], text, jsonb),
    howdah.set_parameter(text, text, jsonb, text),
    howdah.clear_parameter(text, text, text),
    howdah.set_global_parameter(text, jsonb),
    howdah.clear_global_parameter(text)
    TO howdah_operator;

GRANT USAGE ON SCHEMA howdah TO howdah_publisher;
GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.topic_key(text),
    howdah.body_text(bytea),
    howdah.publish(text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish(text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish(text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval, interval, boolean, text, boolean, boolean),
    howdah.publish_topic(text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_many(text, bytea[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(text, text[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(text, jsonb[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.wake(),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.topic_matches(text, text)
    TO howdah_publisher;

GRANT USAGE ON SCHEMA howdah TO howdah_reader;
GRANT SELECT ON
    howdah.alembic_version,
    howdah.gateway,
    howdah.ownership,
    howdah.vhost,
    howdah.exchange,
    howdah.queue,
    howdah.binding,
    howdah.segment,
    howdah.message,
    howdah.message_body,
    howdah.settlement,
    howdah.redelivery,
    howdah.commit_mark,
    howdah.log_end,
    howdah.loss,
    howdah.queue_activity,
    howdah.etl_checkpoint,
    howdah.archive_mark,
    howdah.node,
    howdah.policy,
    howdah.shard,
    howdah.settlement_state,
    howdah.consumer_lag,
    howdah.queue_status,
    howdah.ready_messages,
    howdah.dead_letters,
    howdah.outbox_status,
    howdah.commands,
    howdah.consumer_status,
    howdah.in_flight,
    howdah.etl_status,
    howdah.segment_status,
    howdah.queue_policy
    TO howdah_reader;
GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.body_text(bytea),
    howdah.waits_for_archive(integer),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.topic_matches(text, text),
    howdah.torn_tables(),
    howdah.find_gaps(),
    howdah.note_checkpoint(text, text, bigint, bigint, bigint)
    TO howdah_reader;
