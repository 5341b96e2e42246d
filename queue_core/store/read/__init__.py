"""The way back out of the tables: messages, and all that a restart finds."""
