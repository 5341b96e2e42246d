"""Messages as JSON files: what a client of each protocol would send, and what one would receive."""
