"""The canonical message, and what becomes of it in each protocol."""
