-- A will is published in the name of its user, if that user may publish there when the time comes.

ALTER TABLE howdah.will ADD COLUMN user_name text;
ALTER TABLE howdah.will ADD COLUMN is_built_in boolean;

COMMENT ON COLUMN howdah.will.user_name IS 'User whose will it is; null: nobody''s, it is dropped.';
COMMENT ON COLUMN howdah.will.is_built_in IS 'User is guest or anonymous by the configuration.';

-- What a stored session knows of its user. Of other wills nobody knows whose they are.
UPDATE howdah.will AS w
SET user_name = s.user_name,
    is_built_in = NOT EXISTS (SELECT FROM howdah."user" AS u WHERE u.name = s.user_name)
FROM howdah.session AS s
WHERE s.vhost = w.vhost AND s.client_id = w.client_id;
