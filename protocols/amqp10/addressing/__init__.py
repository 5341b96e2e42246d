"""Addresses, the nodes they name, and filters on a source."""
