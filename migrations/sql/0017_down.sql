-- Back to 0019: commits leave no marks.

COMMENT ON COLUMN howdah.loss.cause IS
    'setback: the database went back in time; torn: a table was taken away; repair: found by repair().';
COMMENT ON COLUMN howdah.loss.detail IS 'What was lost, for people.';

DROP FUNCTION howdah.hold(bigint, timestamptz, integer, bigint, bigint);
CREATE FUNCTION howdah.hold(p_epoch bigint, p_started_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
    -- First the lock, then the look, which sees all that was committed before the lock was free: whoever
    -- takes the database holds this lock alone while it writes its name into howdah.gateway.
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(114827953725801);
    PERFORM FROM howdah.gateway g
    WHERE g.id = 1 AND g.epoch = p_epoch AND g.started_at = p_started_at;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another gateway has taken over this database'
            USING ERRCODE = 'HW001', HINT = 'See howdah.gateway for which one it is.';
    END IF;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION howdah.hold(bigint, timestamptz) IS
    'True, and stays so until this transaction ends, for the gateway that owns this database, by its '
    'epoch and start; an error (HW001) for every other. For the gateway.';

REVOKE ALL ON FUNCTION howdah.hold(bigint, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION howdah.hold(bigint, timestamptz) TO howdah_gateway;

CREATE OR REPLACE FUNCTION howdah.torn_tables() RETURNS TABLE (
    missing text, parent text, number integer, stands_in text
)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT format('%s_%s', w.parent, w.number), w.parent, w.number, c.relname::text
    FROM (
        SELECT t.parent, s.id AS number
        FROM howdah.segment s CROSS JOIN (VALUES ('message'), ('message_body')) AS t (parent)
        UNION ALL
        SELECT t.parent, g.generation
        FROM howdah.gateway g
        CROSS JOIN (VALUES ('settlement'), ('redelivery'), ('deduplication'), ('packet')) AS t (parent)
    ) w
    LEFT JOIN (pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid)
        ON i.inhparent = to_regclass(format('howdah.%I', w.parent))
       AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%s)', w.number)
    WHERE c.relname IS DISTINCT FROM format('%s_%s', w.parent, w.number)
    ORDER BY w.parent, w.number
$function$;

CREATE OR REPLACE FUNCTION howdah.open_generation(p_generation integer) RETURNS void
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
END
$function$;

DROP TABLE howdah.commit_mark;
DROP TABLE howdah.ownership;
ALTER TABLE howdah.gateway DROP COLUMN lineage;
