-- Back to 0012: a will is nobody's.

ALTER TABLE howdah.will DROP COLUMN is_built_in;
ALTER TABLE howdah.will DROP COLUMN user_name;
