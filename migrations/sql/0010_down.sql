-- Back to 0009: a gateway looks for changes of rights once a second.

DROP TRIGGER announce_rights ON howdah.vhost;
DROP TRIGGER announce_rights ON howdah.topic_permission;
DROP TRIGGER announce_rights ON howdah.permission;
DROP TRIGGER announce_rights ON howdah."user";
DROP FUNCTION howdah.announce_rights();
