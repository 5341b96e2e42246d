-- The fence: a gateway's transactions end with an error once it is gone, by whoever's word.

CREATE OR REPLACE FUNCTION howdah.hold(
    p_node integer, p_started_at timestamptz, p_generation integer, p_number bigint, p_messages bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $function$
BEGIN
    -- First the lock, then the look, which sees all that was committed before the lock was free: whoever
    -- fences a node writes that it is gone, and holds this lock alone for a moment after that or meanwhile.
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(1752135524, p_node);
    IF p_number IS NULL THEN
        PERFORM FROM howdah.node n
        WHERE n.id = p_node AND n.started_at = p_started_at AND n.state IN ('up', 'leaving');
    ELSE
        -- The generation is the gateway's word: one that is looked up may be seen before its partitions.
        INSERT INTO howdah.commit_mark (generation, number, messages)
        SELECT p_generation, p_number, p_messages
        FROM howdah.node n
        WHERE n.id = p_node AND n.started_at = p_started_at AND n.state IN ('up', 'leaving');
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another gateway has taken over this database'
            USING ERRCODE = 'HW001', HINT = 'See howdah.node for which one it is.';
    END IF;
    RETURN true;
END
$function$;
COMMENT ON FUNCTION howdah.hold(integer, timestamptz, integer, bigint, bigint) IS
    'True, and stays so until this transaction ends, for a node that serves, by its id and start; an error '
    '(HW001) for every other. Leaves the mark of this commit, if it has a number. For the gateway.';
