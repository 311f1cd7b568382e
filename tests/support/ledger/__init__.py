"""Every ledger backend under test, and what can be done to it from outside."""
