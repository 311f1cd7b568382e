"""Clients of a running agent for the commands: of its HTTP port, and of Kafka's protocol."""
