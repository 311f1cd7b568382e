"""Groups without a network: members by short names, and coordinators over a memory ledger."""
