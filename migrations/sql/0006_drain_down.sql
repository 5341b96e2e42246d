-- Undoes 0006.

DROP FUNCTION howdah.drain_node(text);
