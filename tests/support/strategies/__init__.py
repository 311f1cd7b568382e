"""Hypothesis strategies for ledger commands and Avro schemas."""
