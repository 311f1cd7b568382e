"""Decisions of Penstock beside those of Apache Kafka's own classes, on drawn worlds."""
