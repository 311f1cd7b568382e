"""Ledger entries and snapshots as bytes, in the form of the rules' version in force.

Golden files in tests/golden hold every form that was ever written.
"""
