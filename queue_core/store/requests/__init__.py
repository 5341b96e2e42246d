"""What SQL asks of a running gateway."""
