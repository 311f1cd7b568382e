"""Periodic work of the maintenance leader: snapshots, garbage collection, expiry, retention, digests.

The leader is elected through the ledger (`leader`). Each job proposes ledger entries, or deletes objects that the state
no longer refers to (safety rule S6).
"""
