"""Apache Kafka's own Java tools against a broker, in scripted conversations: `suite` runs them."""
