-- Back to 0021: who consumes is known to the gateway alone.

DROP VIEW howdah.in_flight;
DROP VIEW howdah.consumer_status;
DROP FUNCTION howdah.held_offsets(int8multirange[], timestamptz[]);
DROP FUNCTION howdah.is_served();
DROP TABLE howdah.consumer;
