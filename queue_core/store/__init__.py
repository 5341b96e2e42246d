"""PostgreSQL: the only place with SQL."""
