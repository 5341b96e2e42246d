-- Users get a SCRAM verifier when their password is next set. Until then they log in as before.

ALTER TABLE howdah."user" ADD COLUMN scram_verifier text;
COMMENT ON COLUMN howdah."user".password_hash IS 'Argon2 hash; null: no login by password.';
COMMENT ON COLUMN howdah."user".scram_verifier IS 'SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey; null: no login by SCRAM.';

CREATE TABLE howdah.secret (
    name text NOT NULL,
    value bytea NOT NULL,
    CONSTRAINT secret_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE howdah.secret IS 'Random bytes that stay the same for as long as the database lives.';
COMMENT ON COLUMN howdah.secret.name IS 'What it is for.';
COMMENT ON COLUMN howdah.secret.value IS 'To be known to the gateway only.';

-- Makes the salts of users who do not exist: the same whenever one asks, and after a restart.
INSERT INTO howdah.secret (name, value)
VALUES ('mock salt', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

GRANT SELECT ON howdah.secret TO howdah_gateway;
