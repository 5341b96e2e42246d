"""Detection of lost commits: a failover or a restored backup that took the database back in
time."""
