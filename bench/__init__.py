"""Load generators and side-by-side runs against other brokers."""
