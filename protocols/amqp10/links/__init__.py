"""Links: attaching, sending, receiving, transactions, and their ends."""
