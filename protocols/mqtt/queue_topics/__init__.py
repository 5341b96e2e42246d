"""Topics below `$queue/`: publishing into queues, competing on them, settling."""
