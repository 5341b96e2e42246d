"""A migrated database for the models."""

from tests.store.conftest import migrated_template, migrated_url

__all__ = ["migrated_template", "migrated_url"]
