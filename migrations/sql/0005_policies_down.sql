-- Undoes 0005: policies, parameters, limits and descriptions.

DROP VIEW howdah.queue_policy;
DROP TRIGGER announce_rights ON howdah.policy;
DROP FUNCTION
    howdah.set_policy(text, text, jsonb, text, integer, text, boolean),
    howdah.clear_policy(text, text, boolean),
    howdah.set_vhost_limit(text, integer, text),
    howdah.set_user_limit(text, text, integer),
    howdah.describe_vhost(text, text, text[], text, jsonb),
    howdah.set_parameter(text, text, jsonb, text),
    howdah.clear_parameter(text, text, text),
    howdah.set_global_parameter(text, jsonb),
    howdah.clear_global_parameter(text),
    howdah.merged_limits(jsonb, jsonb, text[], boolean),
    howdah.limit_rank(jsonb),
    howdah.unsupported_keys(text, text),
    howdah.name_matches(text, text),
    howdah.check_policy(jsonb, boolean),
    howdah.is_whole(jsonb, bigint),
    howdah.require_vhost(text);

DROP TABLE howdah.policy, howdah.parameter, howdah.global_parameter;

ALTER TABLE howdah."user" DROP COLUMN max_connections, DROP COLUMN max_channels;
ALTER TABLE howdah.vhost
    DROP COLUMN description,
    DROP COLUMN tags,
    DROP COLUMN default_queue_type,
    DROP COLUMN metadata,
    DROP COLUMN max_connections,
    DROP COLUMN max_queues;
