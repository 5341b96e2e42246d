-- Queues that are paused.

ALTER TABLE howdah.queue ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN howdah.queue.paused_at IS
    'Since when nothing is delivered from it; null: it is not paused.';
