"""Reads messages and the state of queues back from the tables."""
