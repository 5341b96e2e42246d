-- The record of imports of definitions files.

CREATE TABLE howdah.definitions_import (
    id bigint GENERATED ALWAYS AS IDENTITY,
    imported_at timestamptz DEFAULT now() NOT NULL,
    source text NOT NULL,
    imported_by text,
    sha256 text NOT NULL,
    made integer NOT NULL,
    changed integer NOT NULL,
    left_out jsonb NOT NULL,
    CONSTRAINT definitions_import_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE howdah.definitions_import IS
    'Imports of definitions files, the newest thousand. A file that is unchanged since the last start '
    'is not imported again.';
COMMENT ON COLUMN howdah.definitions_import.id IS 'Row number.';
COMMENT ON COLUMN howdah.definitions_import.imported_at IS 'When it was imported.';
COMMENT ON COLUMN howdah.definitions_import.source IS 'Where it came from: start, HTTP or command.';
COMMENT ON COLUMN howdah.definitions_import.imported_by IS
    'User who imported it; null: the operating system knows.';
COMMENT ON COLUMN howdah.definitions_import.sha256 IS 'SHA-256 of the file, in hexadecimal.';
COMMENT ON COLUMN howdah.definitions_import.made IS 'Items that were new.';
COMMENT ON COLUMN howdah.definitions_import.changed IS 'Items that were changed.';
COMMENT ON COLUMN howdah.definitions_import.left_out IS
    'What was not taken, and why, a text for each.';

COMMENT ON COLUMN howdah."user".password_hash IS
    'Argon2 hash, or until the first login one from RabbitMQ (rabbit_sha256$...); null: no login by '
    'password.';
