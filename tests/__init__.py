"""The promises, and the tests that try to break them."""
