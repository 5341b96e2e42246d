"""Upkeep of the tables: drops segments that nobody needs, and notes what views show to a DBA."""
