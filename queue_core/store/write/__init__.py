"""Writes messages and settlements into the tables, in one transaction at a time."""
