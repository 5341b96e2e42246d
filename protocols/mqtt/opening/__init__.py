"""From CONNECT to CONNACK."""
