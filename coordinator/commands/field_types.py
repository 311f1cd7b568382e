"""Types of the fields of ledger entries, with the ranges that are checked where an entry is written or read.

Rule: msgspec checks them when it decodes, not when a command is made: `coordinator.codec.codec.encode` reads what it
wrote, so a proposer cannot write what no agent reads.
"""

from typing import Annotated

from msgspec import Meta

from protocol.types import (
    Milliseconds,
    ObjectNumber,
    Offset,
    PartitionIndex,
    Position,
    ProducerEpoch,
    ProducerId,
    SessionId,
    TopicId,
)

INT64_MAX = (1 << 63) - 1

Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Index = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Signed32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Timestamp = Annotated[int, Meta(ge=-(1 << 63), le=INT64_MAX)]
Uuid = Annotated[bytes, Meta(min_length=16, max_length=16)]
Shape = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]

# The same for the kinds of number that must never be mixed (`protocol.types`).
TopicIdField = Annotated[TopicId, Meta(min_length=16, max_length=16)]
PartitionField = Annotated[PartitionIndex, Meta(ge=0, le=(1 << 31) - 1)]
SessionField = Annotated[SessionId, Meta(ge=0, le=INT64_MAX)]
ObjectNumberField = Annotated[ObjectNumber, Meta(ge=0, le=INT64_MAX)]
OffsetField = Annotated[Offset, Meta(ge=0, le=INT64_MAX)]
PositionField = Annotated[Position, Meta(ge=0, le=INT64_MAX)]
ProducerIdField = Annotated[ProducerId, Meta(ge=-1, le=INT64_MAX)]
ProducerEpochField = Annotated[ProducerEpoch, Meta(ge=-1, le=(1 << 15) - 1)]
MillisecondsField = Annotated[Milliseconds, Meta(ge=-(1 << 63), le=INT64_MAX)]
NaturalMilliseconds = Annotated[Milliseconds, Meta(ge=0, le=INT64_MAX)]
"""A time that is not before 1970."""
