"""The new state of a recovery, computed from a snapshot's state and the intake objects that it does not know (S9).

Nothing here does I/O: `agent.recovery` reads the bucket and writes the result.
"""
