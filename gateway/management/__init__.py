"""The management listener: health, metrics and queues over HTTP."""
