"""kafka-python's own integration tests against a broker."""
