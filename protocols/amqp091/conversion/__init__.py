"""AMQP 0.9.1's properties and the canonical message's, by tables."""
