"""The kinds of number that must never be mixed, as `NewType`s.

Offsets count records of one partition; positions count entries of the ledger; indexes count from 0 within a parent;
sizes are in bytes; times are in milliseconds since 1970 (UTC).
"""

from typing import NewType

TopicId = NewType("TopicId", bytes)
"""A topic's UUID as its 16 bytes, big-endian."""
PartitionIndex = NewType("PartitionIndex", int)
Offset = NewType("Offset", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""0 to 2**31 - 1, then 0 again."""
Position = NewType("Position", int)
"""A revision of the ledger: every entry of one append has the same position."""
SessionId = NewType("SessionId", int)
"""A session of an agent. It is the position at which the session was created, so it never comes twice."""
ObjectNumber = NewType("ObjectNumber", int)
"""The n-th object of a session."""
ObjectId = NewType("ObjectId", int)
"""An object's number in the state: given at apply, in order, never reused."""
Milliseconds = NewType("Milliseconds", int)

NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = Sequence(-1)
NO_TIMESTAMP = Milliseconds(-1)
SEQUENCE_END = 1 << 31
LEADER_EPOCH = 0
"""Penstock has no leaders, so the epoch that clients see never changes (architecture: fetch)."""
