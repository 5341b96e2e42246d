-- Segments of the log and generations of the journal: partitions made and dropped while all others
-- go on reading and writing.

CREATE FUNCTION howdah.attach_leaf(p_parent name, p_key name, p_number integer) RETURNS void
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
    EXECUTE format(
        'COMMENT ON TABLE howdah.%I IS %L',
        leaf, format('Partition of %s: %s %s.', p_parent, p_key, p_number));
    -- Whoever may use the parent may use the partition in the same way.
    FOR granted IN
        SELECT a.privilege_type, a.is_grantable, a.grantee
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid = format('howdah.%I', p_parent)::regclass AND a.grantee <> c.relowner
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

CREATE FUNCTION howdah.create_segment(p_queue_id bigint DEFAULT NULL) RETURNS integer
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

CREATE FUNCTION howdah.seal_segment(
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

CREATE FUNCTION howdah.retire_segment(p_segment_id integer) RETURNS void
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

CREATE FUNCTION howdah.mark_archived(p_segment_id integer, p_location text) RETURNS void
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

CREATE FUNCTION howdah.lock_segment(p_segment_id integer) RETURNS void
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

CREATE FUNCTION howdah.drop_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
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

CREATE FUNCTION howdah.open_generation(p_generation integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    journal name;
BEGIN
    FOREACH journal IN ARRAY ARRAY['settlement', 'redelivery', 'deduplication', 'packet'] LOOP
        -- A gateway that was stopped half way does it again.
        IF to_regclass(format('howdah.%I', format('%s_%s', journal, p_generation))) IS NULL THEN
            PERFORM howdah.attach_leaf(journal, 'generation', p_generation);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.open_generation(integer) IS
    'Makes the journal partitions of a generation, those that are not there yet. For the gateway.';

CREATE FUNCTION howdah.drop_generation(p_generation integer) RETURNS void
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
END
$function$;
COMMENT ON FUNCTION howdah.drop_generation(integer) IS
    'Drops the journal partitions of a generation that no longer counts. Set lock_timeout first. '
    'For the gateway.';
