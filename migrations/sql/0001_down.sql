-- Back to nothing. Without CASCADE: a view of yours that rests on ours stops it, and is named.
-- The roles stay: they belong to the whole server, and so do the logins that were granted them.

DROP VIEW
    howdah.in_flight, howdah.consumer_status, howdah.commands, howdah.outbox_status,
    howdah.dead_letters, howdah.ready_messages, howdah.queue_status, howdah.consumer_lag,
    howdah.settlement_state;

DROP TRIGGER announce_rights ON howdah."user";
DROP TRIGGER announce_rights ON howdah.permission;
DROP TRIGGER announce_rights ON howdah.topic_permission;
DROP TRIGGER announce_rights ON howdah.vhost;

DROP FUNCTION
    howdah.announce_rights(),
    howdah.attach_leaf(name, name, integer),
    howdah.average_bytes(bigint, bigint, uuid),
    howdah.bind(text, text, text, jsonb, text),
    howdah.bind_topic(text, text, text),
    howdah.body_text(bytea),
    howdah.check_publish(text, text, text, bytea, jsonb, integer, interval, interval, boolean),
    howdah.check_texts(jsonb),
    howdah.check_view_key(uuid),
    howdah.command_status(bigint),
    howdah.create_segment(bigint),
    howdah.declare_queue(text, jsonb, text),
    howdah.delayed_count(bigint, uuid),
    howdah.delete_queue(text, text, boolean, boolean),
    howdah.dotted(text),
    howdah.drop_generation(integer),
    howdah.drop_segment(integer),
    howdah.enqueued_at(bigint, bigint, uuid),
    howdah.filter_key(text),
    howdah.find_gaps(),
    howdah.group_names(bigint, uuid),
    howdah.held_offsets(int8multirange[], timestamptz[]),
    howdah.hold(bigint, timestamptz, integer, bigint, bigint),
    howdah.is_declared(text, text),
    howdah.is_served(),
    howdah.keep_for_archive(text, text, boolean),
    howdah.lock_segment(integer),
    howdah.mark_archived(integer, text),
    howdah.mend_table(text, integer, text),
    howdah.messages_between(bigint, bigint, bigint, uuid),
    howdah.newest_offset(bigint, uuid),
    howdah.note_checkpoint(text, text, bigint, bigint, bigint),
    howdah.oldest_offset(bigint, uuid),
    howdah.open_generation(integer),
    howdah.peek(text, integer, bigint, text),
    howdah.protocol_name(smallint),
    howdah.publish(
        text, bytea, text, jsonb, text, text, text, text, text, text, text, text, integer,
        interval, interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, text, text, jsonb, text, text, text, text, text, text, text, text, integer,
        interval, interval, boolean, text, boolean, boolean),
    howdah.publish(
        text, jsonb, text, jsonb, text, text, text, text, text, text, text, text, integer,
        interval, interval, boolean, text, boolean, boolean),
    howdah.publish_many(
        text, bytea[], text, jsonb, text, text[], integer, interval, interval, boolean,
        text, boolean),
    howdah.publish_many(
        text, text[], text, jsonb, text, text[], integer, interval, interval, boolean, text,
        boolean),
    howdah.publish_many(
        text, jsonb[], text, jsonb, text, text[], integer, interval, interval, boolean,
        text, boolean),
    howdah.publish_topic(
        text, bytea, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, text, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.publish_topic(
        text, jsonb, boolean, jsonb, text, text, text, interval, interval, boolean, text),
    howdah.purge(text, text),
    howdah.redrive(text, text, text),
    howdah.repair(),
    howdah.reset_group(text, text, text, text),
    howdah.retire_segment(integer),
    howdah.seal_segment(integer, bigint, bigint, timestamptz),
    howdah.settled(bigint, text, uuid),
    howdah.slashed(text),
    howdah.submit_binding(text, text, text, text, jsonb, text),
    howdah.submit_command(text, text, text, jsonb),
    howdah.topic_key(text),
    howdah.torn_tables(),
    howdah.unbind(text, text, text, jsonb, text),
    howdah.unbind_topic(text, text, text),
    howdah.unsettled_chunks(bigint, uuid),
    howdah.waits_for_archive(integer),
    howdah.wake();

DROP TABLE
    howdah.archive_mark, howdah.etl_checkpoint,
    howdah.consumer, howdah.queue_activity, howdah.command, howdah.outbox,
    howdah.loss, howdah.log_end,
    howdah.commit_mark, howdah.packet, howdah.deduplication, howdah.redelivery, howdah.settlement,
    howdah.message_body, howdah.message, howdah.segment,
    howdah.retained, howdah.will, howdah.subscription, howdah.session,
    howdah.binding, howdah.queue, howdah.exchange,
    howdah.topic_permission, howdah.permission, howdah."user", howdah.vhost,
    howdah.secret, howdah.view_key, howdah.ownership, howdah.gateway;
REVOKE ALL ON howdah.alembic_version
    FROM howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;
REVOKE ALL ON SCHEMA howdah
    FROM howdah_gateway, howdah_operator, howdah_publisher, howdah_reader;
