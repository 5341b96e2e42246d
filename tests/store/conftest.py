"""Fixtures of the store's tests: databases that have the schema."""

from tests.support.migrated_databases import db, house, migrated_template, migrated_url, other

__all__ = ["db", "house", "migrated_template", "migrated_url", "other"]
