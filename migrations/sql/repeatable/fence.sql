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

CREATE OR REPLACE FUNCTION howdah.drain_node(node_name text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    target howdah.node;
BEGIN
    -- The caller's transaction may not stay open: beats and takeovers would wait for it.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    PERFORM pg_advisory_xact_lock(1752135524, 0);  -- nobody rises or is fenced meanwhile
    SELECT * INTO target FROM howdah.node n
    WHERE n.name = node_name AND n.state <> 'gone'
    ORDER BY n.state = 'joining', n.id DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no node % that lives', quote_nullable(node_name)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.node, or howdah node list.';
    ELSIF target.cluster IS NULL THEN
        RAISE EXCEPTION 'gateway % is in no cluster', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Stop it, or start it with cluster.enabled: true.';
    ELSIF target.state = 'joining' THEN
        RAISE EXCEPTION 'node % stands by: it has nothing to hand over', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'It may be stopped as it is.';
    ELSIF NOT EXISTS (
        SELECT FROM howdah.node n JOIN pg_locks l ON l.objid = n.id::oid
        WHERE n.state = 'joining' AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.classid = 1752135524::oid
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    ) THEN
        RAISE EXCEPTION 'no other node stands by to take over from %', quote_nullable(node_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Start another gateway with cluster.enabled: true and the same database.';
    END IF;
    UPDATE howdah.node n SET state = 'leaving' WHERE n.id = target.id;
    RETURN target.id;
END
$function$;
COMMENT ON FUNCTION howdah.drain_node(text) IS
    'Has the node of that name that serves end its work in order, so that a standby takes over; it then '
    'stands by itself. Returns its id.';
