"""A proxy for Kafka's protocol that drops, delays and repeats single messages."""
