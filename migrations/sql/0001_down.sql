-- Back to nothing. Without CASCADE: a view of yours that rests on ours stops it, and is named.
-- The roles stay: they belong to the whole server, and so do the logins that were granted them.

DROP VIEW
    howdah.dead_letters, howdah.ready_messages, howdah.queue_status, howdah.consumer_lag,
    howdah.settlement_state;

DROP FUNCTION
    howdah.command_status(bigint),
    howdah.declare_queue(text, jsonb, text),
    howdah.delete_queue(text, text, boolean, boolean),
    howdah.purge(text, text),
    howdah.redrive(text, text, text),
    howdah.submit_command(text, text, text, jsonb),
    howdah.peek(text, integer, bigint, text),
    howdah.publish_topic(
        text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.topic_key(text),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer, interval,
        interval, boolean, text, boolean),
    howdah.check_texts(jsonb),
    howdah.check_publish(text, text, text, bytea, jsonb, integer, interval, interval),
    howdah.body_text(bytea),
    howdah.dotted(text),
    howdah.slashed(text),
    howdah.protocol_name(smallint),
    howdah.drop_generation(integer),
    howdah.open_generation(integer),
    howdah.drop_segment(integer),
    howdah.lock_segment(integer),
    howdah.mark_archived(integer, text),
    howdah.retire_segment(integer),
    howdah.seal_segment(integer, bigint, bigint, timestamptz),
    howdah.create_segment(bigint),
    howdah.attach_leaf(name, name, integer);

DROP TABLE
    howdah.queue_activity, howdah.command, howdah.outbox,
    howdah.packet, howdah.deduplication, howdah.redelivery, howdah.settlement,
    howdah.message_body, howdah.message, howdah.segment,
    howdah.retained, howdah.will, howdah.subscription, howdah.session,
    howdah.binding, howdah.queue, howdah.exchange,
    howdah.topic_permission, howdah.permission, howdah."user", howdah.vhost,
    howdah.gateway;
REVOKE ALL ON howdah.alembic_version
    FROM howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;
REVOKE ALL ON SCHEMA howdah
    FROM howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;
