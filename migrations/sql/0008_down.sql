-- Takes away what works out routes from the tables.

DROP FUNCTION howdah.routed_queues(text, text, jsonb, text);
DROP FUNCTION howdah.headers_match(jsonb, jsonb);
DROP FUNCTION howdah.key_matches(text, text);
