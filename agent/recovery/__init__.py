"""A cluster whose ledger is lost, from its bucket: `penstock recover`; and `penstock audit`.

In: snapshots and intake objects. Out: a new incarnation of the ledger (safety rule S9), or a list of what is missing
or damaged.
"""
