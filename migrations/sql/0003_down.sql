-- Takes away what looks into queues for the management API, and puts back the texts that it changed.

DROP FUNCTION howdah.end_session(text, text);
DROP VIEW howdah.segment_status, howdah.etl_status, howdah.retained_messages,
    howdah.session_subscriptions, howdah.session_status;
DROP FUNCTION howdah.message_life(text, bigint, text);
DROP FUNCTION howdah.dead_letter_causes(text, bigint, integer, text);
DROP FUNCTION howdah.offset_at(text, timestamptz, text);
DROP FUNCTION howdah.browse(text, bigint, integer, boolean, boolean, text);
REVOKE SELECT ON howdah.consumer_lag FROM howdah_gateway;

CREATE OR REPLACE FUNCTION howdah.submit_command(kind text, vhost text, queue text, argument jsonb)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    target howdah.queue;
    is_nothing CONSTANT boolean := kind = 'redrive' AND argument ->> 'offsets' = '{}';
    submitted bigint;
BEGIN
    IF kind IS NULL OR kind <> ALL (ARRAY[
        'purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind', 'reset_group'
    ]) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind(), '
                         'unbind() or reset_group().';
    END IF;
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = submit_command.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
    SELECT * INTO target FROM howdah.queue q
    WHERE q.vhost = submit_command.vhost AND q.name = submit_command.queue;
    IF NOT FOUND AND kind <> 'declare_queue' AND NOT howdah.is_declared(vhost, queue) THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (
        kind, vhost, queue, argument, requested_by, requested_at, done_at, result)
    VALUES (
        submit_command.kind, submit_command.vhost, submit_command.queue,
        -- The number, so that a queue of the same name made since is left alone.
        argument || jsonb_strip_nulls(jsonb_build_object('queue_id', target.id)),
        session_user,
        -- Not now(): it stands between the messages of the same transaction.
        clock_timestamp(),
        CASE WHEN is_nothing THEN now() END, CASE WHEN is_nothing THEN '{"moved": 0}'::jsonb END
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
COMMENT ON FUNCTION howdah.submit_command(text, text, text, jsonb) IS
    'Asks the gateway for something. Internal: call purge(), redrive(), delete_queue(), '
    'declare_queue(), bind(), unbind() or reset_group().';

CREATE OR REPLACE FUNCTION howdah.redrive(
    queue text, predicate text DEFAULT 'true', vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql
SET jit = off
AS $function$
DECLARE
    offsets int8multirange;
BEGIN
    IF predicate IS NULL OR predicate ~ '^\s*$' THEN
        RAISE EXCEPTION 'the predicate is empty'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to take them all.';
    END IF;
    -- The predicate is the caller's own SQL, so it runs with the caller's rights and no others.
    EXECUTE format(
        $query$
            SELECT range_agg(int8range(r."offset", r."offset", '[]'))
            FROM howdah.ready_messages r
            WHERE r.vhost = $1 AND r.queue = $2 AND r.deaths IS NOT NULL AND (%s
            )
        $query$, predicate)
    INTO offsets USING vhost, queue;
    RETURN howdah.submit_command(
        'redrive', vhost, queue,
        jsonb_build_object('offsets', coalesce(offsets, '{}')::text, 'predicate', predicate));
END
$function$;
COMMENT ON FUNCTION howdah.redrive(text, text, text) IS
    'Sends dead letters that lie in a queue back to the queues they died in. The predicate is an '
    'SQL condition on the columns of ready_messages. Returns the number of a command; see '
    'command_status().';

DROP FUNCTION howdah.topic_matches(text, text);
DROP FUNCTION howdah.failure_text(jsonb);
DROP FUNCTION howdah.body_json(bytea);
