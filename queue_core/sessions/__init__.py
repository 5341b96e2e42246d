"""MQTT's state that outlives a connection."""
