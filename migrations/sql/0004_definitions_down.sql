-- Undoes 0004_definitions. Users who have not logged in since they came from RabbitMQ need a new
-- password in the release that one goes back to: it does not know their hashes.

DROP FUNCTION howdah.import_definitions(jsonb, text);
DROP TABLE howdah.definitions_import;

COMMENT ON COLUMN howdah."user".password_hash IS 'Argon2 hash; null: no login by password.';
