"""Recovery of a lost ledger from the bucket (`penstock recover`), and the audit (`penstock audit`).

In: snapshots and intake objects. Out: a new incarnation of the ledger (safety rule S9), or a list of what is missing
or damaged.
"""
