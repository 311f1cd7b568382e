"""The ledger's port and its adapters: memory for tests, SQLite for one process, etcd for a cluster.

In: entries with the number that the session expects. Out: one total order, or a third outcome: unknown. The contract
that all adapters keep: tests/contract/test_ledger.py.
"""
