"""The way into the tables: one transaction at a time."""
