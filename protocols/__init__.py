"""The protocol adapters; none of them knows another."""
