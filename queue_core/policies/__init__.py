"""Policies: values that operators give to queues and exchanges by their names, at any time."""
