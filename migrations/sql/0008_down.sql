-- Back to 0007: virtual hosts are no business of operators.

REVOKE SELECT ON howdah.vhost FROM howdah_operator;

COMMENT ON COLUMN howdah."user".tags IS 'What it may manage.';
COMMENT ON COLUMN howdah.redelivery.amended IS 'How often consumers added something to the message.';

DO $$
DECLARE
    used regclass;
BEGIN
    FOR used IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'howdah.redelivery'::regclass LOOP
        EXECUTE format('COMMENT ON COLUMN %s.amended IS %L', used,
            'How often consumers added something to the message.');
    END LOOP;
END
$$;
