"""The parts that a handler gets: the request, the services, Kafka's messages as values, draining, features."""
