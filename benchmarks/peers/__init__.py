"""The systems that are compared, started as real processes on loopback, and Kafka's own load tools."""
