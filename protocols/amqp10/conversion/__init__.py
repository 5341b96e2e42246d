"""AMQP 1.0's sections and the canonical message, by tables."""
