-- Back to 0001: the notes of the Spark jobs go, and no segment waits for its archive any more.

CREATE OR REPLACE FUNCTION howdah.drop_segment(p_segment_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
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

DROP FUNCTION
    howdah.note_checkpoint(text, text, bigint, bigint, bigint),
    howdah.waits_for_archive(integer),
    howdah.keep_for_archive(text, text, boolean);

DROP TABLE howdah.archive_mark, howdah.etl_checkpoint;
