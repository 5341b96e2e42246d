"""Deliveries: what is ready, who gets it next, and how each one ends."""
