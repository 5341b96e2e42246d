"""Requests that SQL makes of a running gateway: messages of the outbox, and commands."""
