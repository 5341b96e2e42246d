"""Statistics: rates and short histories of queues and connections, in bounded memory."""
