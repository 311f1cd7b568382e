"""What a handler is given: the request, the services, Kafka's messages as values, draining, features."""
