"""Spark jobs that read the queue tables through JDBC; they know the schema only."""
