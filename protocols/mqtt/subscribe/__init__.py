"""SUBSCRIBE and UNSUBSCRIBE, and what a client may read."""
