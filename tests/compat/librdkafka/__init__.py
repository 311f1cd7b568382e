"""librdkafka's own test-runner against a broker: `tests.txt` says which of its tests, `suite` runs them."""
