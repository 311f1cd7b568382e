"""Parts of an agent wired for a test, over a ledger and a store in memory."""
