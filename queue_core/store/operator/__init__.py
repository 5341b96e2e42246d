"""Answers to what operators ask of a database: its state, its schema, its faults."""
