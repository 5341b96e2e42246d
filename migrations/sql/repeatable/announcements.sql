-- The gateway hears of a change of rights when it is committed, whoever made it: one word for each
-- transaction, however many rows it touches.

CREATE OR REPLACE FUNCTION howdah.announce_rights() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM pg_notify('howdah_rights', '');
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION howdah.announce_rights() IS
    'Tells the gateway at commit that users, permissions or virtual hosts were changed.';

CREATE OR REPLACE TRIGGER announce_rights AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON howdah."user"
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE OR REPLACE TRIGGER announce_rights AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON howdah.permission
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE OR REPLACE TRIGGER announce_rights AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON howdah.topic_permission
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE OR REPLACE TRIGGER announce_rights AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON howdah.vhost
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
CREATE OR REPLACE TRIGGER announce_rights AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON howdah.policy
    FOR EACH STATEMENT EXECUTE FUNCTION howdah.announce_rights();
