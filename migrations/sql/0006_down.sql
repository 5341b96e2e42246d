-- Back to 0005: what consumers added to messages is forgotten.

DELETE FROM howdah.redelivery r USING howdah.redelivery o
WHERE o.generation = r.generation AND o.queue_id = r.queue_id AND o."offset" = r."offset"
  AND o.count = r.count AND o.amended > r.amended;
ALTER TABLE howdah.redelivery
    DROP CONSTRAINT redelivery_pkey,
    ADD CONSTRAINT redelivery_pkey PRIMARY KEY (queue_id, "offset", count, generation);
ALTER TABLE howdah.redelivery
    DROP COLUMN amendment,
    DROP COLUMN amended;
