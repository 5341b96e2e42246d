-- A consumer group of a stream goes to another place: back, to read again, or forward.

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
    IF NOT FOUND AND kind <> 'declare_queue' THEN
        RAISE EXCEPTION 'there is no durable queue % in virtual host %',
            quote_nullable(queue), quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.queue_status.';
    END IF;
    INSERT INTO howdah.command (kind, vhost, queue, argument, requested_by, done_at, result)
    VALUES (
        submit_command.kind, submit_command.vhost, submit_command.queue,
        -- The number, so that a queue of the same name made since is left alone.
        argument || jsonb_strip_nulls(jsonb_build_object('queue_id', target.id)),
        session_user,
        CASE WHEN is_nothing THEN now() END, CASE WHEN is_nothing THEN '{"moved": 0}'::jsonb END
    ) RETURNING id INTO submitted;
    RETURN submitted;
END
$function$;
COMMENT ON FUNCTION howdah.submit_command(text, text, text, jsonb) IS
    'Asks the gateway for something. Internal: call purge(), redrive(), delete_queue(), '
    'declare_queue(), bind(), unbind() or reset_group().';
COMMENT ON COLUMN howdah.command.kind IS 'What is asked for, such as purge or redrive.';

CREATE FUNCTION howdah.reset_group(
    queue text, group_name text, "position" text DEFAULT 'first', vhost text DEFAULT '/'
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    place jsonb;
    moment timestamptz;
BEGIN
    IF NOT EXISTS (
        SELECT FROM howdah.settlement_state s
        WHERE s.vhost = reset_group.vhost AND s.queue = reset_group.queue
          AND s.kind = 'stream' AND s.group_name = reset_group.group_name
    ) THEN
        RAISE EXCEPTION 'stream % in virtual host % has no consumer group %',
            quote_nullable(queue), quote_nullable(vhost), quote_nullable(group_name)
            USING ERRCODE = 'undefined_object', HINT = 'See howdah.consumer_lag.';
    END IF;
    IF "position" IN ('first', 'last', 'next') THEN
        place := jsonb_build_object('name', "position");
    ELSIF "position" ~ '^[0-9]{1,18}$' THEN
        place := jsonb_build_object('offset', "position"::bigint);
    ELSE
        BEGIN
            moment := "position"::timestamptz;
        EXCEPTION
            WHEN data_exception THEN NULL;  -- said below
        END;
        IF moment IS NULL OR NOT isfinite(moment) THEN
            RAISE EXCEPTION '% is no place in a stream', quote_nullable("position")
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Give first, last, next, an offset, or a time such as '
                             '2026-01-31 12:00+00.';
        END IF;
        place := jsonb_build_object('time', extract(epoch FROM moment));
    END IF;
    RETURN howdah.submit_command(
        'reset_group', vhost, queue, place || jsonb_build_object('group', group_name));
END
$function$;
COMMENT ON FUNCTION howdah.reset_group(text, text, text, text) IS
    'Sends a consumer group of a stream that nobody reads by to another place: first, last, next, '
    'an offset or a time. Returns the number of a command; see command_status().';

REVOKE ALL ON FUNCTION howdah.reset_group(text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION howdah.reset_group(text, text, text, text) TO howdah_operator;
