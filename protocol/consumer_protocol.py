"""Consumers' parts of JoinGroup and SyncGroup in the classic protocol: their subscription, and their assignment.

Rule: every version begins like version 0, and a version above the newest that is known is read as that one; what is
behind it is ignored. Bytes that are neither raise `NotConsumerProtocol`.
Specification: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and
org.apache.kafka.clients.consumer.internals.ConsumerProtocol, Kafka 4.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.errors import MalformedRequest
from protocol.wire import INT16, INT32, UNREADABLE, read_array_length, read_bytes, read_nullable_string, read_string

PROTOCOL_TYPE: Final = "consumer"
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1
FIRST_WITH_OWNED: Final = 1
FIRST_WITH_GENERATION: Final = 2
FIRST_WITH_RACK: Final = 3

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""Names of topics with partitions, as they stood in the bytes."""


class NotConsumerProtocol(ValueError):
    """The bytes are no such message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    version: int
    topics: tuple[str, ...]
    owned: TopicPartitions = ()
    generation: int = NO_GENERATION
    """The generation in which the member got what it owns; `NO_GENERATION` where it does not say."""
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    partitions: TopicPartitions
    user_data: bytes = b""


def read_subscription(metadata: bytes) -> ConsumerSubscription:
    """The subscription of a member in JoinGroup. Raises `NotConsumerProtocol`."""
    view = memoryview(metadata)
    try:
        version, topics, position = _read_first_fields(view)
        owned: TopicPartitions = ()
        generation, rack = NO_GENERATION, None
        if version >= FIRST_WITH_OWNED:
            owned, position = _read_partitions(view, position)
        if version >= FIRST_WITH_GENERATION:
            (generation,) = INT32.unpack_from(view, position)
            position += INT32.size
        if version >= FIRST_WITH_RACK:
            rack, _ = read_nullable_string(view, position, is_flexible=False)
    except (MalformedRequest, *UNREADABLE) as error:
        raise _no_subscription(metadata, error) from error
    return ConsumerSubscription(version=version, topics=topics, owned=owned, generation=generation, rack=rack)


def read_subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """The topics alone, whatever is behind what every version has. Raises `NotConsumerProtocol`.

    Source: org.apache.kafka.coordinator.group.classic.ClassicGroup.computeSubscribedTopics.
    """
    try:
        _, topics, _ = _read_first_fields(memoryview(metadata))
    except (MalformedRequest, *UNREADABLE) as error:
        raise _no_subscription(metadata, error) from error
    return topics


def _read_first_fields(view: memoryview) -> tuple[int, tuple[str, ...], int]:
    """Version and topics of a subscription, and where its user data end."""
    version = _read_version(view)
    count, position = read_array_length(view, INT16.size, is_flexible=False)
    topics: list[str] = []
    for _ in range(count):
        topic, position = read_string(view, position, is_flexible=False)
        topics.append(topic)
    _, position = read_bytes(view, position, is_flexible=False)
    return version, tuple(topics), position


def _no_subscription(metadata: bytes, error: Exception) -> NotConsumerProtocol:
    return NotConsumerProtocol(f"{len(metadata)} bytes are no consumer's subscription: {error}")


def read_assignment(assignment: bytes) -> ConsumerAssignment:
    """The assignment of a member from SyncGroup; nothing where there are no bytes. Raises `NotConsumerProtocol`."""
    if not assignment:
        return ConsumerAssignment(partitions=())
    view = memoryview(assignment)
    try:
        _read_version(view)
        partitions, position = _read_partitions(view, INT16.size)
        user_data, _ = read_bytes(view, position, is_flexible=False)
    except (MalformedRequest, *UNREADABLE) as error:
        raise NotConsumerProtocol(f"{len(assignment)} bytes are no consumer's assignment: {error}") from error
    return ConsumerAssignment(partitions=partitions, user_data=b"" if user_data is None else bytes(user_data))


def write_assignment(partitions: Mapping[str, Sequence[int]], version: int) -> bytes:
    """The bytes for a member whose subscription has this version."""
    parts = [INT16.pack(min(version, VERSION_MAX)), INT32.pack(len(partitions))]
    for topic, indexes in sorted(partitions.items()):
        name = topic.encode()
        parts += [INT16.pack(len(name)), name, INT32.pack(len(indexes)), *map(INT32.pack, indexes)]
    parts.append(INT32.pack(-1))
    return b"".join(parts)


def _read_version(view: memoryview) -> int:
    version: int
    (version,) = INT16.unpack_from(view, 0)
    if version < 0:
        raise MalformedRequest(f"version {version}")
    return min(version, VERSION_MAX)


def _read_partitions(view: memoryview, position: int) -> tuple[TopicPartitions, int]:
    count, position = read_array_length(view, position, is_flexible=False)
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        topic, position = read_string(view, position, is_flexible=False)
        index_count, position = read_array_length(view, position, is_flexible=False)
        indexes: list[int] = []
        for _ in range(index_count):
            (index,) = INT32.unpack_from(view, position)
            indexes.append(index)
            position += INT32.size
        topics.append((topic, tuple(indexes)))
    return tuple(topics), position
