-- Undoes 0007_pause: queues that are paused deliver again in the release that one goes back to.

DROP FUNCTION
    howdah.pause_queue(text, text),
    howdah.resume_queue(text, text),
    howdah.submit_pause(text, text, text);

ALTER TABLE howdah.queue DROP COLUMN paused_at;
