"""One module per Kafka API. A handler turns a decoded request into a response and holds no state of its own."""
