-- Policies and parameters; what is said of virtual hosts, and limits of them and of users.

ALTER TABLE howdah.vhost
    ADD COLUMN description text DEFAULT '' NOT NULL,
    ADD COLUMN tags text[] DEFAULT '{}' NOT NULL,
    ADD COLUMN default_queue_type text CONSTRAINT vhost_default_queue_type_check
        CHECK (default_queue_type IN ('classic', 'quorum', 'stream')),
    ADD COLUMN metadata jsonb DEFAULT '{}' NOT NULL,
    ADD COLUMN max_connections integer,
    ADD COLUMN max_queues integer;
COMMENT ON COLUMN howdah.vhost.description IS 'What it is for, in people''s words.';
COMMENT ON COLUMN howdah.vhost.tags IS 'Words to find it by.';
COMMENT ON COLUMN howdah.vhost.default_queue_type IS
    'Type of durable queues that are declared without one: classic, quorum or stream; null: classic.';
COMMENT ON COLUMN howdah.vhost.metadata IS 'Anything else that tools keep with it.';
COMMENT ON COLUMN howdah.vhost.max_connections IS
    'Connections that it may have; null or negative: any number.';
COMMENT ON COLUMN howdah.vhost.max_queues IS 'Queues that it may have; null or negative: any number.';

ALTER TABLE howdah."user"
    ADD COLUMN max_connections integer,
    ADD COLUMN max_channels integer;
COMMENT ON COLUMN howdah."user".max_connections IS
    'Connections that it may have; null or negative: any number.';
COMMENT ON COLUMN howdah."user".max_channels IS
    'Channels and sessions that it may have in all its connections; null or negative: any number.';

CREATE TABLE howdah.policy (
    vhost text NOT NULL,
    name text NOT NULL,
    is_operator boolean DEFAULT false NOT NULL,
    pattern text NOT NULL,
    apply_to text DEFAULT 'all' NOT NULL CONSTRAINT policy_apply_to_check CHECK (
        apply_to IN ('all', 'queues', 'exchanges', 'classic_queues', 'quorum_queues', 'streams')),
    priority integer DEFAULT 0 NOT NULL,
    definition jsonb NOT NULL,
    changed_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT policy_pkey PRIMARY KEY (vhost, name, is_operator),
    CONSTRAINT policy_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.policy IS
    'Policies: values for queues and exchanges whose names match a pattern.';
COMMENT ON COLUMN howdah.policy.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.policy.name IS 'Name.';
COMMENT ON COLUMN howdah.policy.is_operator IS
    'An operator policy: merged with the policy of a queue, and stricter than it.';
COMMENT ON COLUMN howdah.policy.pattern IS 'Regular expression that is looked for in names.';
COMMENT ON COLUMN howdah.policy.apply_to IS
    'What it is for: all, queues, exchanges, classic_queues, quorum_queues or streams.';
COMMENT ON COLUMN howdah.policy.priority IS 'Of several that match, the one with the highest acts.';
COMMENT ON COLUMN howdah.policy.definition IS 'Keys and values, such as max-length.';
COMMENT ON COLUMN howdah.policy.changed_at IS 'When it was last changed.';

CREATE TABLE howdah.parameter (
    component text NOT NULL,
    vhost text NOT NULL,
    name text NOT NULL,
    value jsonb NOT NULL,
    CONSTRAINT parameter_pkey PRIMARY KEY (component, vhost, name),
    CONSTRAINT parameter_vhost_fkey FOREIGN KEY(vhost) REFERENCES howdah.vhost (name) ON DELETE CASCADE
);
COMMENT ON TABLE howdah.parameter IS
    'Parameters of a virtual host, kept as RabbitMQ''s tools set them.';
COMMENT ON COLUMN howdah.parameter.component IS 'What it is for, such as shovel.';
COMMENT ON COLUMN howdah.parameter.vhost IS 'Virtual host that it belongs to.';
COMMENT ON COLUMN howdah.parameter.name IS 'Name.';
COMMENT ON COLUMN howdah.parameter.value IS 'Value, as given.';

CREATE TABLE howdah.global_parameter (
    name text NOT NULL,
    value jsonb NOT NULL,
    CONSTRAINT global_parameter_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah.global_parameter IS
    'Parameters of all virtual hosts, kept as RabbitMQ''s tools set them.';
COMMENT ON COLUMN howdah.global_parameter.name IS 'Name.';
COMMENT ON COLUMN howdah.global_parameter.value IS 'Value, as given.';
