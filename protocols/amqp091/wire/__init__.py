"""AMQP 0.9.1's bytes: frames, methods, content headers, field tables."""
