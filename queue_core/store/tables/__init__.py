"""The cold tables, one module each."""
