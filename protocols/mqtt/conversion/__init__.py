"""MQTT's properties and the canonical message's, by tables."""
