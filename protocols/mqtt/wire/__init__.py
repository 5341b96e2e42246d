"""MQTT's bytes: packets, properties, reason codes, WebSocket frames."""
