-- New segments are analysed as the server is set.

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
