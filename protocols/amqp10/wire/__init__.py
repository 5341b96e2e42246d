"""AMQP 1.0's bytes: types, message sections, SASL frames."""
