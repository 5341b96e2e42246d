"""Our own HTTP API below /api/howdah/v1."""
