-- Shards: what is durable belongs to one of 64, and each of these to one node. Generations of the journal
-- are numbered over all nodes, and a shard says which one counts for it.

CREATE TABLE howdah.shard (
    id smallint NOT NULL,
    node_id integer,
    epoch bigint DEFAULT 0 NOT NULL,
    generation integer NOT NULL,
    CONSTRAINT shard_pkey PRIMARY KEY (id),
    CONSTRAINT shard_id_check CHECK (id BETWEEN 0 AND 63)
) WITH (fillfactor = 50);
COMMENT ON TABLE howdah.shard IS
    'Parts of all that is durable, always 64: whose each is, and which generation of the journal counts for it.';
COMMENT ON COLUMN howdah.shard.id IS 'Number; see shard_of().';
COMMENT ON COLUMN howdah.shard.node_id IS
    'Node that owns it, and alone writes what belongs to it; null: no gateway has owned it yet.';
COMMENT ON COLUMN howdah.shard.epoch IS 'Counts its owners.';
COMMENT ON COLUMN howdah.shard.generation IS
    'Generation of the journal that counts for it: of the owner before, until the owner has adopted it.';

CREATE TABLE howdah.journal_generation (
    number integer GENERATED ALWAYS AS IDENTITY,
    node_id integer,
    opened_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT journal_generation_pkey PRIMARY KEY (number)
);
COMMENT ON TABLE howdah.journal_generation IS
    'Generations of the journal that have partitions; one that no shard names is dropped.';
COMMENT ON COLUMN howdah.journal_generation.number IS
    'Number of its partitions, such as settlement_<number>; of all nodes together, and never used again.';
COMMENT ON COLUMN howdah.journal_generation.node_id IS
    'Node that writes it, or did; null: a gateway of a release before.';
COMMENT ON COLUMN howdah.journal_generation.opened_at IS 'When it was opened.';

INSERT INTO howdah.shard (id, generation)
SELECT n, g.generation FROM howdah.gateway g CROSS JOIN generate_series(0, 63) AS n;
-- Those before may have left partitions that are not dropped yet.
INSERT INTO howdah.journal_generation (number) OVERRIDING SYSTEM VALUE
SELECT right(c.relname, -12)::integer
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'howdah.commit_mark'::regclass AND c.relname ~ '^commit_mark_[0-9]+$'
UNION
SELECT g.generation FROM howdah.gateway g;
SELECT setval(pg_get_serial_sequence('howdah.journal_generation', 'number'), max(number))
FROM howdah.journal_generation;
ALTER TABLE howdah.gateway DROP COLUMN generation;

-- The hash of shard_of(), whose text is in repeatable/names.sql: a revision calls none of our functions.
ALTER TABLE howdah.queue ADD COLUMN shard smallint;
UPDATE howdah.queue SET shard = get_byte(sha256(convert_to(concat_ws(
    chr(10), vhost,
    CASE
        WHEN name LIKE '$session/%' THEN 'session' WHEN name LIKE '$share/%' THEN 'group' ELSE 'queue'
    END,
    CASE
        WHEN name LIKE '$session/%' THEN right(name, -9) WHEN name LIKE '$share/%' THEN right(name, -7)
        ELSE name
    END
), 'UTF8')), 0) & 63;
ALTER TABLE howdah.queue
    ALTER COLUMN shard SET NOT NULL, ADD CONSTRAINT queue_shard_check CHECK (shard BETWEEN 0 AND 63);
COMMENT ON COLUMN howdah.queue.shard IS 'Shard that it belongs to, with its messages and its journal.';

ALTER TABLE howdah.session ADD COLUMN shard smallint;
UPDATE howdah.session SET shard =
    get_byte(sha256(convert_to(concat_ws(chr(10), vhost, 'session', client_id), 'UTF8')), 0) & 63;
ALTER TABLE howdah.session
    ALTER COLUMN shard SET NOT NULL, ADD CONSTRAINT session_shard_check CHECK (shard BETWEEN 0 AND 63);
COMMENT ON COLUMN howdah.session.shard IS 'Shard that it belongs to, as its queue and its will.';

ALTER TABLE howdah.will ADD COLUMN shard smallint;
UPDATE howdah.will SET shard =
    get_byte(sha256(convert_to(concat_ws(chr(10), vhost, 'session', client_id), 'UTF8')), 0) & 63;
ALTER TABLE howdah.will
    ALTER COLUMN shard SET NOT NULL, ADD CONSTRAINT will_shard_check CHECK (shard BETWEEN 0 AND 63);
COMMENT ON COLUMN howdah.will.shard IS 'Shard that it belongs to, as the session of its client.';

ALTER TABLE howdah.retained ADD COLUMN shard smallint;
UPDATE howdah.retained SET shard =
    get_byte(sha256(convert_to(concat_ws(chr(10), vhost, 'retained', topic), 'UTF8')), 0) & 63;
ALTER TABLE howdah.retained
    ALTER COLUMN shard SET NOT NULL, ADD CONSTRAINT retained_shard_check CHECK (shard BETWEEN 0 AND 63);
COMMENT ON COLUMN howdah.retained.shard IS 'Shard that it belongs to.';

ALTER TABLE howdah.segment ADD COLUMN node_id integer, ADD COLUMN needed_by smallint[];
-- A stream's segments belong to its shard; those of one that was deleted, to whoever drops them.
UPDATE howdah.segment g SET needed_by = coalesce(
    (SELECT ARRAY[q.shard] FROM howdah.queue q WHERE q.id = g.queue_id),
    ARRAY(SELECT s.id FROM howdah.shard s ORDER BY s.id))
WHERE g.sealed_at IS NOT NULL OR g.queue_id IS NOT NULL;
COMMENT ON COLUMN howdah.segment.node_id IS
    'Node that writes it, or did last; null: a gateway of a release before.';
COMMENT ON COLUMN howdah.segment.needed_by IS
    'Shards that may have messages in it; null: it is open, and shared by those of its node.';

COMMENT ON COLUMN howdah.settlement.generation IS 'Generation; partition key. Only that of the queue''s shard counts.';
COMMENT ON COLUMN howdah.redelivery.generation IS 'Generation; partition key. Only that of the queue''s shard counts.';
COMMENT ON COLUMN howdah.deduplication.generation IS 'Generation; partition key. Only that of the queue''s shard counts.';
COMMENT ON COLUMN howdah.packet.generation IS 'Generation; partition key. Only that of the session''s shard counts.';

-- Other parameters, results and rights: their current texts are in repeatable/segments.sql.
DROP FUNCTION IF EXISTS howdah.open_generation(integer);
DROP FUNCTION IF EXISTS howdah.create_segment(bigint);
DROP FUNCTION IF EXISTS howdah.lock_segment(integer);
DROP FUNCTION IF EXISTS howdah.drop_segment(integer);
