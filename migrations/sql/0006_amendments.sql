-- AMQP 1.0's `modified` may add annotations to a message. They belong to its place in that queue.

ALTER TABLE howdah.redelivery
    ADD COLUMN amended integer DEFAULT 0 NOT NULL,
    ADD COLUMN amendment bytea;
ALTER TABLE howdah.redelivery
    DROP CONSTRAINT redelivery_pkey,
    ADD CONSTRAINT redelivery_pkey PRIMARY KEY (queue_id, "offset", count, amended, generation);
COMMENT ON COLUMN howdah.redelivery.amended IS 'How often consumers added something to the message.';
COMMENT ON COLUMN howdah.redelivery.amendment IS 'All that consumers added to the message; null: nothing. The row with the highest amended counts.';

-- A new generation's table takes over the comments; the one that is in use gets them here.
DO $$
DECLARE
    used regclass;
BEGIN
    FOR used IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'howdah.redelivery'::regclass LOOP
        EXECUTE format('COMMENT ON COLUMN %s.amended IS %L', used,
            'How often consumers added something to the message.');
        EXECUTE format('COMMENT ON COLUMN %s.amendment IS %L', used,
            'All that consumers added to the message; null: nothing. The row with the highest amended counts.');
    END LOOP;
END
$$;
