"""The composition root: command line, configuration, listeners, life cycle."""
