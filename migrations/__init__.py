"""The schema's history, as alembic revisions."""
