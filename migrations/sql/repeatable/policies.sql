-- Policies, limits and parameters: set and cleared in SQL, and what acts on which queue. The gateway
-- hears of every change when it is committed, and acts at once.

CREATE OR REPLACE FUNCTION howdah.is_whole(value jsonb, lowest bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT CASE WHEN jsonb_typeof(value) = 'number'
                THEN (value #>> '{}')::numeric >= lowest AND (value #>> '{}')::numeric % 1 = 0
                ELSE false END
$function$;
COMMENT ON FUNCTION howdah.is_whole(jsonb, bigint) IS
    'Whether a value is a whole number, not below the least. Internal.';

CREATE OR REPLACE FUNCTION howdah.check_policy(definition jsonb, operator boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    operator_keys CONSTANT text[] := ARRAY[
        'expires', 'message-ttl', 'max-length', 'max-length-bytes', 'max-in-memory-length',
        'max-in-memory-bytes', 'delivery-limit', 'overflow', 'queue-version', 'target-group-size'];
    acting CONSTANT text[] := ARRAY[
        'message-ttl', 'expires', 'max-length', 'max-length-bytes', 'overflow',
        'dead-letter-exchange', 'dead-letter-routing-key', 'delivery-limit', 'max-age',
        'stream-max-segment-size-bytes', 'consumer-timeout', 'alternate-exchange'];
    inert CONSTANT text[] := ARRAY[
        'ha-mode', 'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
        'ha-promote-on-failure', 'queue-mode', 'queue-version', 'queue-leader-locator',
        'queue-master-locator', 'initial-cluster-size', 'target-group-size', 'max-in-memory-length',
        'max-in-memory-bytes', 'dead-letter-strategy', 'stream-filter-size-bytes'];
    given record;
BEGIN
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' OR definition = '{}' THEN
        RAISE EXCEPTION 'the definition of a policy is an object with at least one key'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For example ''{"max-length": 1000}''.';
    END IF;
    FOR given IN SELECT d.key, d.value FROM jsonb_each(definition) d LOOP
        IF given.key <> ALL (acting || inert) THEN
            RAISE EXCEPTION 'key % cannot be in a policy', quote_literal(given.key)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Use ' || array_to_string(acting, ', ') || '.';
        END IF;
        IF operator AND given.key <> ALL (operator_keys) THEN
            RAISE EXCEPTION 'key % is for ordinary policies', quote_literal(given.key)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'An operator policy may have ' || array_to_string(operator_keys, ', ') || '.';
        END IF;
        IF NOT (CASE
            WHEN given.key IN (
                'message-ttl', 'max-length', 'max-length-bytes', 'stream-max-segment-size-bytes')
                THEN howdah.is_whole(given.value, 0)
            WHEN given.key = 'expires' THEN howdah.is_whole(given.value, 1)
            WHEN given.key = 'delivery-limit' THEN howdah.is_whole(given.value, -1)
            WHEN given.key = 'consumer-timeout' THEN howdah.is_whole(given.value, 1000)
            WHEN given.key = 'overflow' THEN coalesce(
                given.value #>> '{}' IN ('drop-head', 'reject-publish', 'reject-publish-dlx'), false)
            WHEN given.key = 'max-age'
                THEN coalesce(given.value #>> '{}' ~ '^[0-9]+[YMDhms]$', false) AND length(given.value #>> '{}') <= 301
            WHEN given.key IN (
                'dead-letter-exchange', 'dead-letter-routing-key', 'alternate-exchange')
                THEN jsonb_typeof(given.value) = 'string'
            ELSE true
        END) THEN
            RAISE EXCEPTION 'key % of a policy cannot be %', quote_literal(given.key), given.value
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Times are whole milliseconds, limits whole numbers, max-age is like 7D.';
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION howdah.check_policy(jsonb, boolean) IS
    'Refuses the definition of a policy that has an unknown key or a value that cannot be. Internal.';

CREATE OR REPLACE FUNCTION howdah.require_vhost(vhost text) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM howdah.vhost v WHERE v.name = require_vhost.vhost) THEN
        RAISE EXCEPTION 'there is no virtual host %', quote_nullable(vhost)
            USING ERRCODE = 'undefined_object', HINT = 'Leave vhost out for ''/''.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.require_vhost(text) IS
    'Raises an error where there is no virtual host of that name. Internal.';

CREATE OR REPLACE FUNCTION howdah.set_policy(
    name text,
    pattern text,
    definition jsonb,
    apply_to text DEFAULT 'all',
    priority integer DEFAULT 0,
    vhost text DEFAULT '/',
    operator boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    IF set_policy.name IS NULL OR octet_length(set_policy.name) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'the name of a policy has 1 to 255 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF set_policy.pattern IS NULL OR length(set_policy.pattern) > 2000 THEN
        RAISE EXCEPTION 'the pattern of a policy has up to 2000 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM '' ~ set_policy.pattern;  -- or an error that says what is wrong with it
    PERFORM howdah.check_policy(set_policy.definition, set_policy.operator);
    PERFORM howdah.require_vhost(set_policy.vhost);
    INSERT INTO howdah.policy AS p
        (vhost, name, is_operator, pattern, apply_to, priority, definition)
    VALUES (
        set_policy.vhost, set_policy.name, set_policy.operator, set_policy.pattern,
        set_policy.apply_to, set_policy.priority, set_policy.definition)
    ON CONFLICT (vhost, name, is_operator) DO UPDATE
    SET pattern = excluded.pattern, apply_to = excluded.apply_to, priority = excluded.priority,
        definition = excluded.definition, changed_at = now();
END
$function$;
COMMENT ON FUNCTION howdah.set_policy(text, text, jsonb, text, integer, text, boolean) IS
    'Makes a policy, or replaces the one of that name: values for the queues and exchanges whose '
    'names match a regular expression. With operator, an operator policy. Acts at once.';

CREATE OR REPLACE FUNCTION howdah.clear_policy(
    name text, vhost text DEFAULT '/', operator boolean DEFAULT false
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM howdah.policy p
    WHERE p.vhost = clear_policy.vhost AND p.name = clear_policy.name
      AND p.is_operator = clear_policy.operator;
    RETURN FOUND;
END
$function$;
COMMENT ON FUNCTION howdah.clear_policy(text, text, boolean) IS
    'Removes a policy, or with operator an operator policy; false: there was none of that name.';

CREATE OR REPLACE FUNCTION howdah.set_vhost_limit(
    "limit" text, value integer, vhost text DEFAULT '/'
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF "limit" IS NULL OR "limit" NOT IN ('max-connections', 'max-queues') THEN
        RAISE EXCEPTION 'virtual hosts have no limit %', quote_nullable("limit")
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use max-connections or max-queues.';
    END IF;
    PERFORM howdah.require_vhost(vhost);
    UPDATE howdah.vhost v
    SET max_connections = CASE "limit" WHEN 'max-connections' THEN value ELSE v.max_connections END,
        max_queues = CASE "limit" WHEN 'max-queues' THEN value ELSE v.max_queues END
    WHERE v.name = set_vhost_limit.vhost;
END
$function$;
COMMENT ON FUNCTION howdah.set_vhost_limit(text, integer, text) IS
    'Limits a virtual host: max-connections or max-queues. Null or a negative number: no limit. What '
    'is there already stays.';

CREATE OR REPLACE FUNCTION howdah.set_user_limit("user" text, "limit" text, value integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF "limit" IS NULL OR "limit" NOT IN ('max-connections', 'max-channels') THEN
        RAISE EXCEPTION 'users have no limit %', quote_nullable("limit")
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use max-connections or max-channels.';
    END IF;
    UPDATE howdah."user" u
    SET max_connections = CASE "limit" WHEN 'max-connections' THEN value ELSE u.max_connections END,
        max_channels = CASE "limit" WHEN 'max-channels' THEN value ELSE u.max_channels END
    WHERE u.name = set_user_limit."user";
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no user %', quote_nullable("user")
            USING ERRCODE = 'undefined_object', HINT = 'Make it first with `howdah user add`.';
    END IF;
END
$function$;
COMMENT ON FUNCTION howdah.set_user_limit(text, text, integer) IS
    'Limits a user: max-connections or max-channels. Null or a negative number: no limit. What is '
    'open already stays open.';

CREATE OR REPLACE FUNCTION howdah.describe_vhost(
    vhost text,
    description text DEFAULT NULL,
    tags text[] DEFAULT NULL,
    default_queue_type text DEFAULT NULL,
    metadata jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM howdah.require_vhost(vhost);
    UPDATE howdah.vhost v
    SET description = coalesce(describe_vhost.description, v.description),
        tags = coalesce(describe_vhost.tags, v.tags),
        default_queue_type = coalesce(describe_vhost.default_queue_type, v.default_queue_type),
        metadata = coalesce(describe_vhost.metadata, v.metadata)
    WHERE v.name = describe_vhost.vhost;
END
$function$;
COMMENT ON FUNCTION howdah.describe_vhost(text, text, text[], text, jsonb) IS
    'Changes what is said of a virtual host, and the type of queues that are declared there without '
    'one; what is null stays as it is.';

CREATE OR REPLACE FUNCTION howdah.set_parameter(
    component text, name text, value jsonb, vhost text DEFAULT '/'
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM howdah.require_vhost(set_parameter.vhost);
    INSERT INTO howdah.parameter (component, vhost, name, value)
    VALUES (set_parameter.component, set_parameter.vhost, set_parameter.name, set_parameter.value)
    ON CONFLICT (component, vhost, name) DO UPDATE SET value = excluded.value;
END
$function$;
COMMENT ON FUNCTION howdah.set_parameter(text, text, jsonb, text) IS
    'Keeps a parameter of a virtual host, for tools that set and read it.';

CREATE OR REPLACE FUNCTION howdah.clear_parameter(
    component text, name text, vhost text DEFAULT '/'
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM howdah.parameter p
    WHERE p.component = clear_parameter.component AND p.vhost = clear_parameter.vhost
      AND p.name = clear_parameter.name;
    RETURN FOUND;
END
$function$;
COMMENT ON FUNCTION howdah.clear_parameter(text, text, text) IS
    'Removes a parameter of a virtual host; false: there was none of that name.';

CREATE OR REPLACE FUNCTION howdah.set_global_parameter(name text, value jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    INSERT INTO howdah.global_parameter (name, value)
    VALUES (set_global_parameter.name, set_global_parameter.value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
END
$function$;
COMMENT ON FUNCTION howdah.set_global_parameter(text, jsonb) IS
    'Keeps a parameter of all virtual hosts, for tools that set and read it.';

CREATE OR REPLACE FUNCTION howdah.clear_global_parameter(name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM howdah.global_parameter p WHERE p.name = clear_global_parameter.name;
    RETURN FOUND;
END
$function$;
COMMENT ON FUNCTION howdah.clear_global_parameter(text) IS
    'Removes a parameter of all virtual hosts; false: there was none of that name.';

-- ------------------------------------------------------------------------------- what acts on what

CREATE OR REPLACE FUNCTION howdah.name_matches(name text, pattern text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN name ~ pattern;
EXCEPTION
    WHEN invalid_regular_expression THEN
        RETURN NULL;  -- the gateway's dialect has some signs that PostgreSQL's has not
END
$function$;
COMMENT ON FUNCTION howdah.name_matches(text, text) IS
    'Whether a pattern is found in a name; null: it cannot be read here. Internal.';

CREATE OR REPLACE FUNCTION howdah.unsupported_keys(family text, apply_to text) RETURNS text[]
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT CASE family
        WHEN 'streams' THEN ARRAY[
            'ha-mode', 'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
            'ha-promote-on-failure', 'queue-mode', 'queue-master-locator', 'expires', 'message-ttl',
            'dead-letter-exchange', 'dead-letter-routing-key', 'max-in-memory-length',
            'max-in-memory-bytes', 'overflow', 'delivery-limit', 'dead-letter-strategy',
            'target-group-size']
            || CASE WHEN apply_to = family THEN '{}' ELSE '{max-length}' END::text[]
        WHEN 'quorum_queues' THEN ARRAY[
            'max-age', 'stream-max-segment-size-bytes', 'initial-cluster-size', 'ha-mode',
            'ha-params', 'ha-sync-mode', 'ha-sync-batch-size', 'ha-promote-on-shutdown',
            'ha-promote-on-failure', 'queue-mode', 'queue-master-locator']
        ELSE ARRAY[
            'max-age', 'stream-max-segment-size-bytes', 'initial-cluster-size',
            'dead-letter-strategy', 'target-group-size']
            || CASE WHEN apply_to = family THEN '{}' ELSE '{delivery-limit}' END::text[]
    END
$function$;
COMMENT ON FUNCTION howdah.unsupported_keys(text, text) IS
    'Keys with which a policy is not for queues of a type. Internal.';

CREATE OR REPLACE FUNCTION howdah.limit_rank(value jsonb) RETURNS numeric
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT CASE
        WHEN jsonb_typeof(value) = 'number' AND (value #>> '{}')::numeric < 0 THEN 'infinity'::numeric
        WHEN jsonb_typeof(value) = 'number' THEN (value #>> '{}')::numeric
        ELSE left(value #>> '{}', -1)::numeric * CASE right(value #>> '{}', 1)
            WHEN 'Y' THEN 31536000 WHEN 'M' THEN 2592000 WHEN 'D' THEN 86400
            WHEN 'h' THEN 3600 WHEN 'm' THEN 60 ELSE 1 END
    END
$function$;
COMMENT ON FUNCTION howdah.limit_rank(jsonb) IS
    'A number or an age such as 7D, to find the smaller of two limits by. Internal.';

CREATE OR REPLACE FUNCTION howdah.merged_limits(
    mine jsonb, theirs jsonb, smaller text[], theirs_wins boolean
) RETURNS jsonb
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT coalesce(jsonb_object_agg(k.key, CASE
        WHEN NOT mine ? k.key THEN theirs -> k.key
        WHEN NOT theirs ? k.key THEN mine -> k.key
        WHEN k.key = ANY (smaller) THEN CASE
            WHEN howdah.limit_rank(mine -> k.key) <= howdah.limit_rank(theirs -> k.key)
            THEN mine -> k.key ELSE theirs -> k.key END
        WHEN theirs_wins THEN theirs -> k.key
        ELSE mine -> k.key
    END), '{}')
    FROM (SELECT jsonb_object_keys(mine) AS key UNION SELECT jsonb_object_keys(theirs)) k
$function$;
COMMENT ON FUNCTION howdah.merged_limits(jsonb, jsonb, text[], boolean) IS
    'Two sets of values as one: of the named keys the smaller value, of the others one side''s. '
    'Internal.';

CREATE OR REPLACE VIEW howdah.queue_policy AS
SELECT
    q.vhost,
    q.name AS queue,
    t.queue_type,
    ordinary.name AS policy,
    operator.name AS operator_policy,
    d.definition,
    howdah.merged_limits(
        a.declared,
        CASE WHEN left(q.name, 1) = '$' THEN d.definition - 'expires' ELSE d.definition END,
        ARRAY['message-ttl', 'expires', 'max-length', 'max-length-bytes', 'delivery-limit', 'max-age',
              'stream-max-segment-size-bytes', 'consumer-timeout'],
        false
    ) AS effective,
    q.id AS queue_id
FROM howdah.queue q
CROSS JOIN LATERAL (
    SELECT coalesce(q.arguments ->> 'x-queue-type', 'classic') AS queue_type
) t
CROSS JOIN LATERAL (
    SELECT CASE t.queue_type
        WHEN 'stream' THEN 'streams' WHEN 'quorum' THEN 'quorum_queues' ELSE 'classic_queues'
    END AS family
) f
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(substr(e.key, 3), e.value), '{}') AS declared
    FROM jsonb_each(q.arguments) e
    WHERE e.key LIKE 'x-%' AND e.key NOT IN ('x-queue-type', 'x-howdah-types')
) a
-- The first in order whose pattern is found in the name and whose keys the type supports.
LEFT JOIN LATERAL (
    SELECT c.name, c.definition FROM howdah.policy c
    WHERE c.vhost = q.vhost AND NOT c.is_operator AND c.apply_to IN ('all', 'queues', f.family)
      AND howdah.name_matches(q.name, c.pattern)
      AND NOT c.definition ?| howdah.unsupported_keys(f.family, c.apply_to)
    ORDER BY c.priority DESC, c.name COLLATE "C" LIMIT 1
) ordinary ON true
LEFT JOIN LATERAL (
    SELECT c.name, c.definition FROM howdah.policy c
    WHERE c.vhost = q.vhost AND c.is_operator AND c.apply_to IN ('all', 'queues', f.family)
      AND howdah.name_matches(q.name, c.pattern)
      AND NOT c.definition ?| howdah.unsupported_keys(f.family, c.apply_to)
    ORDER BY c.priority DESC, c.name COLLATE "C" LIMIT 1
) operator ON true
CROSS JOIN LATERAL (
    SELECT howdah.merged_limits(
        coalesce(ordinary.definition, '{}'), coalesce(operator.definition, '{}'),
        ARRAY['message-ttl', 'expires', 'max-length', 'max-length-bytes', 'max-in-memory-length',
              'max-in-memory-bytes', 'delivery-limit'],
        true
    ) AS definition
) d
WHERE q.name NOT LIKE '$history/%' AND q.name NOT LIKE '$seen/%';
COMMENT ON VIEW howdah.queue_policy IS
    'Which policies act on each durable queue, and the values that result.';
COMMENT ON COLUMN howdah.queue_policy.vhost IS 'Virtual host.';
COMMENT ON COLUMN howdah.queue_policy.queue IS 'Name of the queue.';
COMMENT ON COLUMN howdah.queue_policy.queue_type IS 'Type that was declared: classic, quorum or stream.';
COMMENT ON COLUMN howdah.queue_policy.policy IS 'Policy that acts on it; null: none.';
COMMENT ON COLUMN howdah.queue_policy.operator_policy IS 'Operator policy that acts on it; null: none.';
COMMENT ON COLUMN howdah.queue_policy.definition IS 'Both policies merged.';
COMMENT ON COLUMN howdah.queue_policy.effective IS
    'Values in force: the policies and the arguments of the queue, without their x-.';
COMMENT ON COLUMN howdah.queue_policy.queue_id IS 'Queue.';
