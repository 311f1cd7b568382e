"""Hypothesis strategies for ledger commands."""
