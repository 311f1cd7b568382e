"""What a simulated world must satisfy at every step and at its end: compared with the ledger."""
