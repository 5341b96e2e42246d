"""Help for tests: processes, databases, clients and clocks, each once."""
