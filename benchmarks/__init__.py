"""Penstock beside Apache Kafka on the same machine, and micro-benchmarks of its parts.

docs/design/benchmarks.md says how to read them.

Rule: nothing here is a test and no test is timed; a figure is a median of rounds in which the peers take turns, and it
is quoted as a ratio, because absolute figures of a shared machine drift.
"""
