"""The commands that a ledger entry may carry, each defined once with its tag, its fields and their ranges, and the
versions of their rules."""
