"""Kafka's clients behind one face, so that every test runs with every one of them."""
