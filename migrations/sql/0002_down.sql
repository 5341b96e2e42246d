-- Undoes 0002: the fence looks at the one row of howdah.gateway again.

DROP FUNCTION howdah.hold(integer, timestamptz, integer, bigint, bigint);
CREATE OR REPLACE FUNCTION howdah.hold(
    p_epoch bigint, p_started_at timestamptz, p_generation integer, p_number bigint, p_messages bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
    -- First the lock, then the look, which sees all that was committed before the lock was free: whoever
    -- takes the database holds this lock alone while it writes its name into howdah.gateway.
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(114827953725801);
    IF p_number IS NULL THEN
        PERFORM FROM howdah.gateway g
        WHERE g.id = 1 AND g.epoch = p_epoch AND g.started_at = p_started_at;
    ELSE
        -- The generation is the gateway's word: one that is looked up may be seen before its partitions.
        INSERT INTO howdah.commit_mark (generation, number, messages)
        SELECT p_generation, p_number, p_messages
        FROM howdah.gateway g
        WHERE g.id = 1 AND g.epoch = p_epoch AND g.started_at = p_started_at;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another gateway has taken over this database'
            USING ERRCODE = 'HW001', HINT = 'See howdah.gateway for which one it is.';
    END IF;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION howdah.hold(bigint, timestamptz, integer, bigint, bigint) IS
    'True, and stays so until this transaction ends, for the gateway that owns this database, by its '
    'epoch and start; an error (HW001) for every other. Leaves the mark of this commit, if it has a number. For the gateway.';
REVOKE ALL ON FUNCTION howdah.hold(bigint, timestamptz, integer, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION howdah.hold(bigint, timestamptz, integer, bigint, bigint) TO howdah_gateway;

CREATE OR REPLACE FUNCTION howdah.is_served() RETURNS boolean
LANGUAGE plpgsql STABLE COST 1
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- The lock that a gateway holds for as long as it owns the database.
    RETURN EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.classid = (114827953725800 >> 32)::oid
          AND l.objid = (114827953725800 & 4294967295)::oid
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$function$;
COMMENT ON FUNCTION howdah.is_served() IS 'Whether a gateway owns this database now.';

DROP TABLE howdah.node;
