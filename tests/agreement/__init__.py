"""Kafka, the table and the Spark source show the same records, while agents are killed: `make agreement`."""
