-- Gateways that use this database, one row for each life of one.

CREATE TABLE howdah.node (
    id integer GENERATED ALWAYS AS IDENTITY,
    cluster text,
    name text NOT NULL,
    host text NOT NULL,
    address text,
    link_version integer NOT NULL,
    schema_version text NOT NULL,
    state text NOT NULL CONSTRAINT node_state_check CHECK (state IN ('joining', 'up', 'leaving', 'gone')),
    beat bigint DEFAULT 0 NOT NULL,
    lease_ms integer NOT NULL,
    max_message_size bigint NOT NULL,
    limits jsonb DEFAULT '{}' NOT NULL,
    started_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    gone_at timestamptz,
    gone_because text,
    fenced_by integer,
    CONSTRAINT node_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50);
COMMENT ON TABLE howdah.node IS
    'Gateways that use this database, one row for each life of one; the newest thousand of those that are gone stay.';
COMMENT ON COLUMN howdah.node.id IS 'Names one life of a gateway; never used again.';
COMMENT ON COLUMN howdah.node.cluster IS 'Name of its cluster; null: it serves alone.';
COMMENT ON COLUMN howdah.node.name IS 'Name of the gateway; the next life of it has the same.';
COMMENT ON COLUMN howdah.node.host IS 'Machine that it runs on.';
COMMENT ON COLUMN howdah.node.address IS 'Address that its session came from; null: a Unix socket.';
COMMENT ON COLUMN howdah.node.link_version IS 'Version of the protocol between nodes that it speaks; 0: none.';
COMMENT ON COLUMN howdah.node.schema_version IS 'Revision of the schema that it was made for.';
COMMENT ON COLUMN howdah.node.state IS
    'joining: waits, and serves nobody; up: serves; leaving: ends its work in order; gone: commits nothing any more.';
COMMENT ON COLUMN howdah.node.beat IS 'Counts its signs of life; nobody reads a clock in it.';
COMMENT ON COLUMN howdah.node.lease_ms IS 'Milliseconds of silence after which others take it for dead; 0: it gives no signs of life.';
COMMENT ON COLUMN howdah.node.max_message_size IS 'Largest message in bytes that it takes.';
COMMENT ON COLUMN howdah.node.limits IS 'Limits that it is configured with, to compare with those of other nodes.';
COMMENT ON COLUMN howdah.node.started_at IS 'When it joined; with the id, the name of this life even in a database that went back in time.';
COMMENT ON COLUMN howdah.node.gone_at IS 'When it left or was fenced; null: it is not gone.';
COMMENT ON COLUMN howdah.node.gone_because IS 'Why it is gone, for people; null: it is not gone.';
COMMENT ON COLUMN howdah.node.fenced_by IS 'Node that took it for dead; null: it is not gone, or left in order.';

-- The fence asks for a node, not for an epoch; its current text is in repeatable/fence.sql.
DROP FUNCTION IF EXISTS howdah.hold(bigint, timestamptz, integer, bigint, bigint);
