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

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA howdah FROM PUBLIC;

GRANT USAGE ON SCHEMA howdah
    TO howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;

-- The gateway.
GRANT SELECT ON howdah.alembic_version TO howdah_gateway;
GRANT SELECT, UPDATE ON howdah.gateway TO howdah_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    howdah.vhost, howdah."user", howdah.permission, howdah.topic_permission, howdah.exchange,
    howdah.queue, howdah.binding, howdah.session, howdah.subscription, howdah.will,
    howdah.retained, howdah.queue_activity
    TO howdah_gateway;
GRANT SELECT ON howdah.segment TO howdah_gateway;
GRANT SELECT, INSERT ON
    howdah.message, howdah.message_body,
    howdah.settlement, howdah.redelivery, howdah.deduplication, howdah.packet
    TO howdah_gateway;
GRANT SELECT, DELETE ON howdah.outbox TO howdah_gateway;
GRANT SELECT, DELETE, UPDATE (done_at, result, error) ON howdah.command TO howdah_gateway;
GRANT EXECUTE ON FUNCTION
    howdah.create_segment(bigint),
    howdah.seal_segment(integer, bigint, bigint, timestamptz),
    howdah.retire_segment(integer),
    howdah.lock_segment(integer),
    howdah.drop_segment(integer),
    howdah.open_generation(integer),
    howdah.drop_generation(integer)
    TO howdah_gateway;

-- Whoever reads the log itself: Spark jobs, reports. No passwords, no sessions, no wills.
GRANT SELECT ON
    howdah.alembic_version, howdah.gateway, howdah.vhost, howdah.exchange, howdah.queue,
    howdah.binding, howdah.segment, howdah.message, howdah.message_body, howdah.settlement,
    howdah.redelivery, howdah.queue_activity
    TO howdah_reader;

-- People: the views, without the tables below them.
GRANT SELECT ON
    howdah.settlement_state, howdah.consumer_lag, howdah.queue_status, howdah.ready_messages,
    howdah.dead_letters
    TO howdah_operator, howdah_reader;
GRANT EXECUTE ON FUNCTION
    howdah.protocol_name(smallint),
    howdah.slashed(text),
    howdah.dotted(text),
    howdah.body_text(bytea)
    TO howdah_operator, howdah_publisher, howdah_reader;

-- Operators look into queues, and ask the gateway to change them.
GRANT EXECUTE ON FUNCTION
    howdah.peek(text, integer, bigint, text),
    howdah.submit_command(text, text, text, jsonb),
    howdah.redrive(text, text, text),
    howdah.purge(text, text),
    howdah.delete_queue(text, text, boolean, boolean),
    howdah.declare_queue(text, jsonb, text),
    howdah.command_status(bigint),
    howdah.mark_archived(integer, text)
    TO howdah_operator;

-- Applications publish in their own transactions, and see nothing.
GRANT EXECUTE ON FUNCTION
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.topic_key(text),
    howdah.publish_topic(
        text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text)
    TO howdah_publisher, howdah_operator;
