"""This agent's copy of the cluster's state, and its appends to the ledger.

In: entries in the ledger's order. Out: the state that every other package of `agent` reads, the outcome of each
proposed command, and barriers for reads that must be current. `bootstrap` loads the state at a start.
"""
