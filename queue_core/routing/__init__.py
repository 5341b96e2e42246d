"""Where a message goes: topics, exchanges, bindings, and the router over them."""
