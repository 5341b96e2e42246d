"""The private PostgreSQL of a gateway without `database.url`."""
