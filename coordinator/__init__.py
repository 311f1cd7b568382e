"""The ledger and the deterministic state machine that every agent computes from it.

`follower.py` turns ledger records into state and outcomes, `snapshot.py` is the whole state as bytes, `recovery.py`
rebuilds it from a bucket, `invariants.py` says what holds of every state. No I/O except in the ledger's adapters.
"""
