"""Small Kafka clients for tests, down to the bytes of one request."""
