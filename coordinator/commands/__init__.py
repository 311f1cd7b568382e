"""The commands that a ledger entry may carry, as plain values, and the versions of their rules."""
