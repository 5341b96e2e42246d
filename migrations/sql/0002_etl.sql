-- What the Spark jobs need: a note of how far each has come, and a mark on logs whose segments are
-- kept until a job has confirmed their copy.

CREATE TABLE howdah.etl_checkpoint (
    job text NOT NULL,
    target text NOT NULL,
    queue_id bigint NOT NULL,
    "offset" bigint NOT NULL,
    messages bigint DEFAULT 0 NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    changed_by text DEFAULT CURRENT_USER NOT NULL,
    CONSTRAINT etl_checkpoint_pkey PRIMARY KEY (job, target, queue_id)
);
COMMENT ON TABLE howdah.etl_checkpoint IS
    'How far each Spark job has come: one row per job, target and queue.';
COMMENT ON COLUMN howdah.etl_checkpoint.job IS 'export or replay.';
COMMENT ON COLUMN howdah.etl_checkpoint.target IS
    'Where it writes to: a directory, or the name of a replay.';
COMMENT ON COLUMN howdah.etl_checkpoint.queue_id IS 'Queue that it reads.';
COMMENT ON COLUMN howdah.etl_checkpoint."offset" IS 'All up to this offset is done; -1: nothing.';
COMMENT ON COLUMN howdah.etl_checkpoint.messages IS 'Messages done so far.';
COMMENT ON COLUMN howdah.etl_checkpoint.changed_at IS 'When it last moved.';
COMMENT ON COLUMN howdah.etl_checkpoint.changed_by IS 'Login that moved it.';

CREATE TABLE howdah.archive_mark (
    queue_id bigint NOT NULL,
    marked_at timestamp with time zone DEFAULT now() NOT NULL,
    marked_by text NOT NULL,
    CONSTRAINT archive_mark_pkey PRIMARY KEY (queue_id)
);
COMMENT ON TABLE howdah.archive_mark IS
    'Logs whose segments are kept until segment.archive says where a copy is; see '
    'keep_for_archive().';
COMMENT ON COLUMN howdah.archive_mark.queue_id IS
    'Stream whose segments are kept; 0: those that the classic queues share.';
COMMENT ON COLUMN howdah.archive_mark.marked_at IS 'When it was marked.';
COMMENT ON COLUMN howdah.archive_mark.marked_by IS 'Login that marked it.';

CREATE FUNCTION howdah.keep_for_archive(
    queue text DEFAULT NULL, vhost text DEFAULT '/', keep boolean DEFAULT true
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    marked bigint := 0;
BEGIN
    IF queue IS NOT NULL THEN
        SELECT q.id INTO marked FROM howdah.queue q
        WHERE q.vhost = keep_for_archive.vhost AND q.name = keep_for_archive.queue
          AND q.kind = 'stream';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no stream % in virtual host %',
                quote_literal(queue), quote_literal(vhost)
                USING ERRCODE = 'undefined_object',
                      HINT = 'Classic queues share their segments: leave queue out to keep those.';
        END IF;
    END IF;
    IF keep THEN
        INSERT INTO howdah.archive_mark (queue_id, marked_by) VALUES (marked, session_user)
        ON CONFLICT (queue_id) DO NOTHING;
    ELSE
        DELETE FROM howdah.archive_mark m WHERE m.queue_id = marked;
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.keep_for_archive(text, text, boolean) IS
    'Segments of that stream (null: those that the classic queues share) are kept until they are '
    'archived; with keep => false, no longer.';

CREATE FUNCTION howdah.waits_for_archive(p_segment_id integer) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT EXISTS (
        SELECT FROM howdah.segment s JOIN howdah.archive_mark m ON m.queue_id = coalesce(s.queue_id, 0)
        WHERE s.id = p_segment_id AND s.archive IS NULL)
$function$;
COMMENT ON FUNCTION howdah.waits_for_archive(integer) IS
    'Whether a segment must be kept, since it is marked for archive and not archived yet.';

CREATE OR REPLACE FUNCTION howdah.drop_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF howdah.waits_for_archive(p_segment_id) THEN
        RAISE EXCEPTION 'segment % is marked for archive, and not archived yet', p_segment_id
            USING ERRCODE = 'object_in_use',
                  HINT = 'Run `howdah etl archive`, or take the mark away with keep_for_archive().';
    END IF;
    -- Dropping a partition locks its parent against everyone: set lock_timeout, and try again later.
    -- Always message first, as readers take them: the other way round could deadlock.
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_%s', p_segment_id));
    EXECUTE format('DROP TABLE IF EXISTS howdah.%I', format('message_body_%s', p_segment_id));
    DELETE FROM howdah.segment WHERE id = p_segment_id;
    IF NOT FOUND THEN
        RAISE NOTICE 'there is no segment %: nothing dropped', p_segment_id;
    END IF;
END
$function$;

CREATE FUNCTION howdah.note_checkpoint(
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

REVOKE ALL ON FUNCTION
    howdah.keep_for_archive(text, text, boolean),
    howdah.waits_for_archive(integer),
    howdah.note_checkpoint(text, text, bigint, bigint, bigint)
    FROM PUBLIC;

-- The jobs read tables, and write to none: they note how far they are through the function.
GRANT SELECT ON howdah.etl_checkpoint, howdah.archive_mark TO howdah_reader;
GRANT EXECUTE ON FUNCTION
    howdah.waits_for_archive(integer),
    howdah.note_checkpoint(text, text, bigint, bigint, bigint)
    TO howdah_reader;
GRANT SELECT ON howdah.archive_mark TO howdah_gateway;
GRANT EXECUTE ON FUNCTION howdah.keep_for_archive(text, text, boolean) TO howdah_operator;
