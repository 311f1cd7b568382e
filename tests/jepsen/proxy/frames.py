"""What a proxy reads of Kafka's requests: who asks for what, and in which transaction.

Rule: pure, and nothing is refused: what is not understood has no transactional id, and passes as it came.
Specification: https://kafka.apache.org/protocol; KIP-482 for flexible versions.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from protocol.wire import (
    INT32,
    UNREADABLE,
    UUID_BYTES,
    read_array_length,
    read_nullable_string,
    read_string,
    read_tagged_fields,
)

_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_PRODUCER = struct.Struct(">qh?")
"""Of an EndTxn: producer id, epoch, whether it commits."""

PRODUCE_BEFORE_TOPICS = 6
"""Of a Produce: acks, time-out."""
PRODUCE_TOPIC_IDS_FIRST = 13
"""The version from which a Produce names topics by their ids."""
ADD_BEFORE_TOPICS = 10
"""Of an AddPartitionsToTxn: producer id, epoch."""


class Api(IntEnum):
    """The APIs of a transaction."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


FLEXIBLE_FIRST: Mapping[int, int] = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
"""The first flexible version of each; the body of all of them begins with the transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedRequest:
    """One request. `frame`: all of it but its size. `transactional_id`: None where it has none that can be read."""

    frame: bytes
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    transactional_id: str | None
    body_first: int
    """Where the body begins, behind the transactional id where it has one."""

    @classmethod
    def read(cls, frame: bytes) -> Self:
        """Raises struct.error: no request header is that short."""
        view = memoryview(frame)
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(view)
        first = _HEADER.size + max(client_id_bytes, 0)
        client_id = str(view[_HEADER.size : first], "utf-8", "replace")
        transactional_id = None
        if api_key in FLEXIBLE_FIRST:
            is_flexible = version >= FLEXIBLE_FIRST[api_key]
            try:
                position = read_tagged_fields(view, first)[1] if is_flexible else first
                transactional_id, first = read_nullable_string(view, position, is_flexible=is_flexible)
            except UNREADABLE:
                transactional_id = None
        return cls(
            frame=frame,
            api_key=api_key,
            version=version,
            correlation_id=correlation_id,
            client_id=client_id,
            transactional_id=transactional_id,
            body_first=first,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """What an EndTxn asks for."""

    producer_id: int
    epoch: int
    is_commit: bool

    @classmethod
    def read(cls, request: ProxiedRequest) -> Self:
        """Of a request that is one. Raises struct.error: it is cut off."""
        assert request.api_key == Api.END_TXN
        producer_id, epoch, is_commit = _PRODUCER.unpack_from(request.frame, request.body_first)
        return cls(producer_id=producer_id, epoch=epoch, is_commit=is_commit)


def is_commit(request: ProxiedRequest) -> bool:
    """Whether an EndTxn commits: a predicate for rules."""
    return EndTxn.read(request).is_commit


def first_partition(request: ProxiedRequest) -> int:
    """Of the partitions that a Produce writes to, or that a client's AddPartitionsToTxn (up to version 3) adds.

    Raises struct.error: it is cut off.
    """
    view, version = memoryview(request.frame), request.version
    is_flexible = version >= FLEXIBLE_FIRST[request.api_key]
    is_produce = request.api_key == Api.PRODUCE
    before = PRODUCE_BEFORE_TOPICS if is_produce else ADD_BEFORE_TOPICS
    _, position = read_array_length(view, request.body_first + before, is_flexible=is_flexible)
    if is_produce and version >= PRODUCE_TOPIC_IDS_FIRST:
        position += UUID_BYTES
    else:
        _, position = read_string(view, position, is_flexible=is_flexible)
    _, position = read_array_length(view, position, is_flexible=is_flexible)
    return int(INT32.unpack_from(view, position)[0])


def correlation_id_of(answer: bytes) -> int:
    """Of an answer without its size."""
    return int(INT32.unpack_from(answer)[0])


def end_txn_error(answer: bytes, version: int) -> int:
    """The error code of EndTxn's answer: behind correlation id, tagged fields of the header and throttle time."""
    first = 4 + (1 if version >= FLEXIBLE_FIRST[Api.END_TXN] else 0) + 4
    return int(struct.unpack_from(">h", answer, first)[0])
