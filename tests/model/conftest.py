"""A migrated database for the models, and a manager on one for what they found."""

from tests.support.migrated_databases import house, migrated_template, migrated_url

__all__ = ["house", "migrated_template", "migrated_url"]
