"""Messages from the client."""
