"""How commands speak to a running agent: over its HTTP port, or by Kafka's protocol as any client does."""
