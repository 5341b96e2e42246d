"""Units of what becomes durable together, and the ports that the store implements."""
