"""The ledger and the deterministic state machine that every agent computes from it.

Rule of the package: `apply` alone changes `ClusterState`, and what it does depends on the state and the entry alone.
"""
