"""Definitions as one document, in RabbitMQ's form: read, planned, made, and written again."""
