"""Kafka's records as rows and columns: the schema, footers, checksums, and the port to the caller's threads."""
