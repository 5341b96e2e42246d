"""Messages to the client."""
