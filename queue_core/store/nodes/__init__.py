"""Gateways as members of a database: their rows, their locks, and how one is fenced."""
