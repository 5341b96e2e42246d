"""AMQP 0.9.1 on the queue manager's primitives."""
