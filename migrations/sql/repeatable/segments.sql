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

CREATE OR REPLACE FUNCTION howdah.create_segment(p_queue_id bigint DEFAULT NULL) RETURNS integer
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
    INSERT INTO howdah.segment (queue_id) VALUES (p_queue_id) RETURNING id INTO created;
    PERFORM howdah.attach_leaf('message', 'segment_id', created);
    PERFORM howdah.attach_leaf('message_body', 'segment_id', created);
    RETURN created;
END
$function$;
COMMENT ON FUNCTION howdah.create_segment(bigint) IS
    'Opens a segment: of that stream, or with null one that all classic queues share. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.seal_segment(
    p_segment_id integer, p_messages bigint, p_bytes bigint, p_newest_at timestamptz
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE howdah.segment
    SET sealed_at = coalesce(sealed_at, now()), messages = p_messages, bytes = p_bytes,
        newest_at = p_newest_at
    WHERE id = p_segment_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no segment %', p_segment_id USING ERRCODE = 'undefined_object';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.seal_segment(integer, bigint, bigint, timestamptz) IS
    'Notes that a segment is closed for writing, and what is in it. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.retire_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE howdah.segment SET retired_at = coalesce(retired_at, now())
    WHERE id = p_segment_id AND sealed_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no sealed segment %', p_segment_id
            USING ERRCODE = 'undefined_object',
                  HINT = 'A segment that is still written to cannot be retired.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.retire_segment(integer) IS
    'Notes since when nobody needs a segment that a reader keeps from being dropped. For the gateway.';

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

CREATE OR REPLACE FUNCTION howdah.lock_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- All that dropping it will need, before anything is copied out of it in vain; parents before
    -- partitions and message before message_body, as readers take them: else they could deadlock.
    LOCK TABLE ONLY howdah.message, ONLY howdah.message_body IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'LOCK TABLE howdah.%I, howdah.%I IN ACCESS EXCLUSIVE MODE',
        format('message_%s', p_segment_id), format('message_body_%s', p_segment_id));
END
$function$;
COMMENT ON FUNCTION howdah.lock_segment(integer) IS
    'Keeps everyone out of a segment until this transaction ends, to copy what is alive in it and '
    'drop it. Set lock_timeout first. For the gateway.';

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
    'Drops a segment with everything in it. Set lock_timeout first. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.open_generation(p_generation integer) RETURNS void
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
COMMENT ON FUNCTION howdah.open_generation(integer) IS
    'Makes the journal partitions of a generation, those that are not there yet. For the gateway.';

CREATE OR REPLACE FUNCTION howdah.drop_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    journal name;
BEGIN
    IF p_generation >= (SELECT g.generation FROM howdah.gateway g) THEN
        RAISE EXCEPTION 'generation % is in use', p_generation
            USING ERRCODE = 'object_in_use',
                  HINT = 'Only generations before the one in howdah.gateway may be dropped.';
    END IF;
    FOREACH journal IN ARRAY ARRAY['settlement', 'redelivery', 'deduplication', 'packet'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('%s_%s', journal, p_generation));
    END LOOP;
    -- The marks of the generation itself stay for one more: transactions that began in it leave theirs
    -- there, also when the next one has begun.
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('commit_mark_%s', p_generation - 1));
END
$function$;
COMMENT ON FUNCTION howdah.drop_generation(integer) IS
    'Drops the journal partitions of a generation that no longer counts. Set lock_timeout first. '
    'For the gateway.';
