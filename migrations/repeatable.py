"""Functions, views and grants: each is one text, the current one, in sql/repeatable.

A migration to the newest revision runs all of them when the tables are in place. So each file must
run on a new database and on one that has an earlier text of it, with CREATE OR REPLACE; and what
that cannot change (a function's parameters, a view's columns but at its end) the revision drops
first. CONTRIBUTING.md tells how a later revision goes about it.
"""

from __future__ import annotations

from typing import Final

# A file may use what those before it have made. Grants name everything, and partitions take over
# the grants of their tables: these two are the last.
FILES: Final = (
    "names",
    "segments",
    "view_functions",
    "views",
    "consumers",
    "publish",
    "browsing",
    "routing",
    "operations",
    "losses",
    "fence",
    "etl",
    "policies",
    "announcements",
    "roles",
    "journal_generation",
)
PATHS: Final = tuple(f"repeatable/{name}.sql" for name in FILES)
