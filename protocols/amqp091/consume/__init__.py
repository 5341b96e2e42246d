"""Consumers of a channel, what they are delivered, and how they settle it."""
