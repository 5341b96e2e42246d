-- Back to 0002: no login by SCRAM any more. Passwords stay.

DROP TABLE howdah.secret;
ALTER TABLE howdah."user" DROP COLUMN scram_verifier;
COMMENT ON COLUMN howdah."user".password_hash IS 'Argon2 or SCRAM verifier; null: no login by password.';
