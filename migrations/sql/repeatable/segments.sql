-- Segments of the log and generations of the journal: partitions made and dropped while all others
-- go on reading and writing.

CREATE OR REPLACE FUNCTION howdah.attach_leaf(p_parent name, p_key name, p_number integer) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.attach_leaf(name, name, integer) IS
    'Makes one partition and attaches it, without a lock that readers or writers wait for. Internal.';

CREATE OR REPLACE FUNCTION howdah.create_segment(
    p_queue_id bigint DEFAULT NULL, p_node_id integer DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.create_segment(bigint, integer) IS
    'Opens a segment: of that stream, or with null one that all classic queues of the node share. For the '
    'gateway.';

CREATE OR REPLACE FUNCTION howdah.seal_segment(
    p_segment_id integer, p_messages bigint, p_bytes bigint, p_newest_at timestamptz
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.seal_segment(integer, bigint, bigint, timestamptz) IS
    'Notes that a segment is closed for writing, what is in it, and who may need it. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.retire_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.retire_segment(integer) IS
    'Notes since when nobody needs a segment that a reader keeps from being dropped; nothing where other '
    'nodes need it. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.mark_archived(p_segment_id integer, p_location text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.mark_archived(integer, text) IS
    'Notes where a copy of a sealed segment was archived.';

CREATE OR REPLACE FUNCTION howdah.keep_for_archive(
    queue text DEFAULT NULL, vhost text DEFAULT '/', keep boolean DEFAULT true
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.keep_for_archive(text, text, boolean) IS
    'Segments of that stream (null: those that the classic queues share) are kept until they are '
    'archived; with keep => false, no longer.';

CREATE OR REPLACE FUNCTION howdah.waits_for_archive(p_segment_id integer) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT EXISTS (
        SELECT FROM howdah.segment s JOIN howdah.archive_mark m ON m.queue_id = coalesce(s.queue_id, 0)
        WHERE s.id = p_segment_id AND s.archive IS NULL)
$function$;
COMMENT ON FUNCTION howdah.waits_for_archive(integer) IS
    'Whether a segment must be kept, since it is marked for archive and not archived yet.';

CREATE OR REPLACE FUNCTION howdah.lock_segment(p_segment_id integer, p_node_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.lock_segment(integer, integer) IS
    'Keeps everyone out of a segment until this transaction ends, to copy what is alive in it and let it go; '
    'where other nodes need it, only those that let it go, too. Set lock_timeout first. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.drop_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.drop_segment(integer) IS
    'Drops a segment with everything in it. Set lock_timeout first. Internal: for release_segment().';

CREATE OR REPLACE FUNCTION howdah.release_segment(p_segment_id integer, p_node_id integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.release_segment(integer, integer) IS
    'Notes that the shards of a node need a segment no more; the last one drops it, and gets true. Set '
    'lock_timeout first. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.adopt_segments(p_node_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.adopt_segments(integer) IS
    'Takes over the open segments of nodes whose shards this node owns now, before it adopts these. For the '
    'gateway.';

CREATE OR REPLACE FUNCTION howdah.attach_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.attach_generation(integer) IS
    'Makes the journal partitions of a generation, those that are not there yet. Internal.';

CREATE OR REPLACE FUNCTION howdah.open_generation(p_node_id integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    opened integer;
BEGIN
    INSERT INTO howdah.journal_generation (node_id) VALUES (p_node_id) RETURNING number INTO opened;
    PERFORM howdah.attach_generation(opened);
    RETURN opened;
END
$function$;
COMMENT ON FUNCTION howdah.open_generation(integer) IS
    'Opens a generation of the journal that a node writes, and returns its number. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.unused_generations() RETURNS SETOF integer
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.unused_generations() IS
    'Generations of the journal that no shard names and no node writes. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.drop_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION howdah.drop_generation(integer) IS
    'Drops the journal partitions of a generation that no longer counts. Set lock_timeout first. '
    'For the gateway.';
