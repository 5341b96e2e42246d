"""Commits that a database has lost: how they are noticed, and what is said of them."""
