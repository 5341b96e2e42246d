"""RabbitMQ's HTTP API below /api, as far as its tools use it."""
