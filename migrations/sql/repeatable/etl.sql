-- Spark jobs note how far they are. What they keep segments for is in segments.sql.

CREATE OR REPLACE FUNCTION howdah.note_checkpoint(
    p_job text, p_target text, p_queue_id bigint, p_offset bigint, p_messages bigint
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF p_job NOT IN ('export', 'replay') THEN
        RAISE EXCEPTION 'there is no job %', quote_literal(p_job)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Jobs are export and replay.';
    END IF;
    INSERT INTO howdah.etl_checkpoint AS c (job, target, queue_id, "offset", messages, changed_by)
    VALUES (p_job, p_target, p_queue_id, p_offset, p_messages, session_user)
    ON CONFLICT (job, target, queue_id) DO UPDATE
    SET "offset" = EXCLUDED."offset", messages = EXCLUDED.messages, changed_at = now(),
        changed_by = EXCLUDED.changed_by
    -- Said again after a crash it changes nothing, and no job goes back.
    WHERE c."offset" < EXCLUDED."offset";
END
$function$;
COMMENT ON FUNCTION howdah.note_checkpoint(text, text, bigint, bigint, bigint) IS
    'Notes how far a Spark job has come; it only ever goes forward. For the jobs.';
