"""The inputs of a handler: the request, the services, the codec of messages, draining, features."""
