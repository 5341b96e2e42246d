-- Back to 0011: whoever may use the parent may use its partitions, too.

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

DO $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT i.inhrelid::regclass AS leaf, a.privilege_type, a.grantee::regrole::text AS reader
        FROM pg_inherits i
        JOIN pg_class p ON p.oid = i.inhparent
        JOIN pg_class c ON c.oid = i.inhrelid
        CROSS JOIN LATERAL aclexplode(p.relacl) a
        WHERE p.relnamespace = 'howdah'::regnamespace AND c.relkind = 'r'
          AND a.grantee NOT IN (0, p.relowner)
    LOOP
        EXECUTE format('GRANT %s ON %s TO %s', granted.privilege_type, granted.leaf, granted.reader);
    END LOOP;
END
$$;
