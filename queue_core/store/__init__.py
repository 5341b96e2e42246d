"""The PostgreSQL store: the only package with SQL."""
