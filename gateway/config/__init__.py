"""The configuration: keys, where they are written, and how they are read."""
