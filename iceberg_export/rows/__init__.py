"""Kafka's records as rows and columns: the schema, footers, checksums, and the thread pool for this work."""
