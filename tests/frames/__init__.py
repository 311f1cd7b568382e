"""Frames of `format("penstock")` beside those of Spark's Kafka source: drawn sequences, compared row for row."""
