"""AMQP 1.0 on the queue manager's primitives."""
