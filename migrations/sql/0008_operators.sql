-- Whoever looks for the queues of a virtual host is told when there is none of that name.

GRANT SELECT ON howdah.vhost TO howdah_operator;

COMMENT ON COLUMN howdah."user".tags IS 'What it may do beside its permissions: impersonator, to publish in another user''s name. Others are kept, and mean nothing.';
COMMENT ON COLUMN howdah.redelivery.amended IS 'Tells rows of the same count apart: one more each time a consumer adds something to the message, or releases it for a later time.';

-- A new generation's table takes over the comment; the one that is in use gets it here.
DO $$
DECLARE
    used regclass;
BEGIN
    FOR used IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'howdah.redelivery'::regclass LOOP
        EXECUTE format('COMMENT ON COLUMN %s.amended IS %L', used,
            'Tells rows of the same count apart: one more each time a consumer adds something to the message, or releases it for a later time.');
    END LOOP;
END
$$;
