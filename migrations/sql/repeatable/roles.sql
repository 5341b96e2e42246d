-- Roles, and what each may do: exactly what it needs. Grant them to logins:
--   GRANT howdah_gateway TO the_login_of_the_gateway;

DO $block$
DECLARE
    wanted CONSTANT text[] :=
        ARRAY['howdah_gateway', 'howdah_operator', 'howdah_publisher', 'howdah_reader'];
    missing text[];
    role_name text;
BEGIN
    SELECT array_agg(w ORDER BY w) INTO missing
    FROM unnest(wanted) w WHERE to_regrole(w) IS NULL;
    FOREACH role_name IN ARRAY coalesce(missing, '{}') LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;  -- roles belong to the whole server: another database's migration was faster
        END;
    END LOOP;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'the user % may not create roles, and these are missing: %',
            current_user, array_to_string(missing, ', ')
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Ask a DBA to run this once on the server, then migrate again: '
                         || (SELECT string_agg(format('CREATE ROLE %I NOLOGIN;', m), ' ')
                             FROM unnest(missing) m);
END
$block$;

GRANT USAGE ON SCHEMA howdah
    TO howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;

-- ------------------------------------------------------------------------------------- everybody

-- A new function is everybody's by PostgreSQL's default. Ours are nobody's, until they are granted below.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA howdah FROM PUBLIC;

-- Open to all: a view calls them with the rights of its reader. With the key they answer to the views
-- only (see view_functions.sql), and the others show nothing of a queue.
GRANT EXECUTE ON FUNCTION
    howdah.oldest_offset(bigint, uuid),
    howdah.newest_offset(bigint, uuid),
    howdah.enqueued_at(bigint, bigint, uuid),
    howdah.average_bytes(bigint, bigint, uuid),
    howdah.group_names(bigint, uuid),
    howdah.settled(bigint, text, uuid),
    howdah.unsettled_chunks(bigint, uuid),
    howdah.messages_between(bigint, bigint, bigint, uuid),
    howdah.delayed_count(bigint, uuid),
    howdah.is_served(),
    howdah.held_offsets(int8multirange[], timestamptz[]),
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.body_text(bytea),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.topic_matches(text, text),
    howdah.name_matches(text, text),
    howdah.unsupported_keys(text, text),
    howdah.limit_rank(jsonb),
    howdah.merged_limits(jsonb, jsonb, text[], boolean)
    TO PUBLIC;

-- ----------------------------------------------------------------------------------- the gateway

GRANT SELECT ON howdah.alembic_version, howdah.secret, howdah.segment, howdah.archive_mark
    TO howdah_gateway;
GRANT SELECT, UPDATE ON howdah.gateway, howdah.shard TO howdah_gateway;
GRANT SELECT ON howdah.journal_generation TO howdah_gateway;
GRANT SELECT, INSERT, DELETE ON howdah.ownership, howdah.definitions_import TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON howdah.node TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    howdah.vhost, howdah."user", howdah.permission, howdah.topic_permission, howdah.exchange,
    howdah.queue, howdah.binding, howdah.session, howdah.subscription, howdah.will,
    howdah.retained, howdah.queue_activity, howdah.log_end,
    howdah.policy, howdah.parameter, howdah.global_parameter
    TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON howdah.consumer TO howdah_gateway;
GRANT SELECT, INSERT ON
    howdah.message, howdah.message_body,
    howdah.settlement, howdah.redelivery, howdah.deduplication, howdah.packet, howdah.commit_mark,
    howdah.loss
    TO howdah_gateway;
GRANT SELECT, DELETE, UPDATE (waiting_for) ON howdah.outbox TO howdah_gateway;
GRANT SELECT, DELETE, UPDATE (done_at, result, error) ON howdah.command TO howdah_gateway;
GRANT EXECUTE ON FUNCTION
    howdah.hold(integer, timestamptz, integer, bigint, bigint),
    howdah.create_segment(bigint, integer),
    howdah.seal_segment(integer, bigint, bigint, timestamptz),
    howdah.retire_segment(integer),
    howdah.lock_segment(integer, integer),
    howdah.release_segment(integer, integer),
    howdah.adopt_segments(integer),
    howdah.open_generation(integer),
    howdah.drop_generation(integer),
    howdah.unused_generations(),
    howdah.torn_tables()
    TO howdah_gateway;
-- What the management API shows. It looks with these rights, and judges by its own who may see it.
GRANT SELECT ON
    howdah.consumer_lag, howdah.session_status, howdah.session_subscriptions,
    howdah.retained_messages, howdah.etl_status, howdah.segment_status
    TO howdah_gateway;
GRANT EXECUTE ON FUNCTION
    howdah.browse(text, bigint, integer, boolean, boolean, text),
    howdah.offset_at(text, timestamptz, text),
    howdah.dead_letter_causes(text, bigint, integer, text),
    howdah.message_life(text, bigint, text)
    TO howdah_gateway;

-- ----------------------------------------------------------------------------- people and programs

-- Whoever reads the log itself: Spark jobs, reports. No passwords, no sessions, no wills.
GRANT SELECT ON
    howdah.alembic_version, howdah.gateway, howdah.shard, howdah.vhost, howdah.exchange, howdah.queue,
    howdah.binding, howdah.segment, howdah.message, howdah.message_body, howdah.settlement,
    howdah.redelivery, howdah.queue_activity, howdah.etl_checkpoint, howdah.archive_mark
    TO howdah_reader;
-- The Spark jobs write to no table: they note how far they are through the function.
GRANT EXECUTE ON FUNCTION
    howdah.waits_for_archive(integer),
    howdah.note_checkpoint(text, text, bigint, bigint, bigint)
    TO howdah_reader;

-- The views and what was lost, without the messages' own tables below them.
GRANT SELECT ON
    howdah.settlement_state, howdah.consumer_lag, howdah.queue_status, howdah.ready_messages,
    howdah.dead_letters, howdah.outbox_status, howdah.commands, howdah.consumer_status,
    howdah.in_flight, howdah.etl_status, howdah.segment_status, howdah.loss, howdah.log_end,
    howdah.ownership, howdah.node, howdah.commit_mark,
    howdah.queue_policy, howdah.policy
    TO howdah_operator, howdah_reader;
GRANT EXECUTE ON FUNCTION howdah.torn_tables(), howdah.find_gaps()
    TO howdah_operator, howdah_reader;
GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.body_text(bytea),
    howdah.body_json(bytea),
    howdah.failure_text(jsonb),
    howdah.topic_matches(text, text)
    TO howdah_operator, howdah_publisher, howdah_reader;

-- Operators look into queues, and ask the gateway to change them. They see what is defined and where
-- things lie (torn_tables() reads it with their rights), and messages through the views only.
GRANT SELECT ON
    howdah.alembic_version, howdah.gateway, howdah.shard, howdah.vhost, howdah.exchange, howdah.queue,
    howdah.binding, howdah.segment, howdah.session_status, howdah.session_subscriptions,
    howdah.retained_messages, howdah.definitions_import
    TO howdah_operator;
GRANT EXECUTE ON FUNCTION
    howdah.peek(text, integer, bigint, text),
    howdah.browse(text, bigint, integer, boolean, boolean, text),
    howdah.offset_at(text, timestamptz, text),
    howdah.dead_letter_causes(text, bigint, integer, text),
    howdah.message_life(text, bigint, text),
    howdah.end_session(text, text),
    howdah.routed_queues(text, text, jsonb, text),
    howdah.drain_node(text),
    howdah.submit_command(text, text, text, jsonb),
    howdah.redrive(text, text, text),
    howdah.purge(text, text),
    howdah.delete_queue(text, text, boolean, boolean),
    howdah.declare_queue(text, jsonb, text),
    howdah.reset_group(text, text, text, text),
    howdah.filter_key(text),
    howdah.submit_binding(text, text, text, text, jsonb, text),
    howdah.bind(text, text, text, jsonb, text),
    howdah.unbind(text, text, text, jsonb, text),
    howdah.bind_topic(text, text, text),
    howdah.unbind_topic(text, text, text),
    howdah.import_definitions(jsonb, text),
    howdah.submit_pause(text, text, text),
    howdah.pause_queue(text, text),
    howdah.resume_queue(text, text),
    howdah.command_status(bigint),
    howdah.mark_archived(integer, text),
    howdah.keep_for_archive(text, text, boolean),
    howdah.repair(),
    howdah.set_policy(text, text, jsonb, text, integer, text, boolean),
    howdah.clear_policy(text, text, boolean),
    howdah.set_vhost_limit(text, integer, text),
    howdah.set_user_limit(text, text, integer),
    howdah.describe_vhost(text, text, text[], text, jsonb),
    howdah.set_parameter(text, text, jsonb, text),
    howdah.clear_parameter(text, text, text),
    howdah.set_global_parameter(text, jsonb),
    howdah.clear_global_parameter(text)
    TO howdah_operator;

-- Applications publish in their own transactions, and see nothing.
GRANT EXECUTE ON FUNCTION
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean, boolean),
    howdah.topic_key(text),
    howdah.publish_topic(
        text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_many(
        text, bytea[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(
        text, text[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.publish_many(
        text, jsonb[], text, jsonb, text, text[], integer, interval, interval, boolean, text, boolean),
    howdah.wake()
    TO howdah_publisher, howdah_operator;
