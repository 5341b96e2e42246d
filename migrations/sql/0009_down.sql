-- Back to 0008: a group's position moves forward only.

DROP FUNCTION howdah.reset_group(text, text, text, text);

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
    IF kind IS NULL OR kind <> ALL (
        ARRAY['purge', 'redrive', 'delete_queue', 'declare_queue', 'bind', 'unbind']
    ) THEN
        RAISE EXCEPTION 'there is no command %', quote_nullable(kind)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use purge(), redrive(), delete_queue(), declare_queue(), bind() or '
                         'unbind().';
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
    'declare_queue(), bind() or unbind().';
COMMENT ON COLUMN howdah.command.kind IS
    'purge, redrive, delete_queue, declare_queue, bind or unbind.';
