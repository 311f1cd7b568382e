"""Kafka's bytes and words: framing, messages, record batches.

Rule of the package: nothing here does I/O, reads a clock or draws a random number.
Specification: https://kafka.apache.org/protocol and https://kafka.apache.org/documentation/#messageformat
"""
