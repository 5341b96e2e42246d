-- The fence: a gateway's transactions end with an error once another gateway has taken the database.

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
