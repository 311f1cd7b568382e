"""The messages of consumer groups that simulated members speak: those of classic groups, and KIP-848's.

Rule: as `tests.simulation.clients.wire`. Classic members speak versions without tagged fields; a member of the consumer
protocol speaks the first versions that know it, which are compact throughout. What classic members tell each other
(subscriptions and assignments) is laid out as Kafka's own clients do.
Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol (Kafka 4.3).
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.clients.wire import Place, Reader, text

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 12, 13, 14
CONSUMER_GROUP_HEARTBEAT = 68
OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_COORDINATOR_VERSION = 7, 5, 1
JOIN_GROUP_VERSION, HEARTBEAT_VERSION, LEAVE_GROUP_VERSION, SYNC_GROUP_VERSION = 5, 3, 3, 3
EPOCH_COMMIT_VERSION, EPOCH_FETCH_VERSION, CONSUMER_GROUP_HEARTBEAT_VERSION = 9, 9, 1
FIRST_COMPACT = {OFFSET_COMMIT: 8, OFFSET_FETCH: 6, CONSUMER_GROUP_HEARTBEAT: 0}
"""From this version on a request has tagged fields."""
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 2, 0
GROUP = 0
NO_TAGS = b"\x00"
NULL_TEXT = struct.pack(">h", -1)


def is_compact(api_key: int, version: int) -> bool:
    """Whether requests of this version have headers with tagged fields."""
    return version >= FIRST_COMPACT.get(api_key, version + 1)


def nullable_text(value: str | None) -> bytes:
    return NULL_TEXT if value is None else text(value)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found


def _indexes_by_topic(places: Iterable[Place]) -> bytes:
    topics = by_topic(places)
    out = struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        out += text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def _read_indexes_by_topic(reader: Reader) -> list[Place]:
    places: list[Place] = []
    for _ in range(reader.number("i")):
        topic = reader.text()
        places += [(topic, reader.number("i")) for _ in range(reader.number("i"))]
    return places


# What members of classic groups tell each other.


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants, and what it has since which generation."""

    topics: tuple[str, ...]
    owned: tuple[Place, ...] = ()
    generation: int = -1


def subscription(wanted: Subscription) -> bytes:
    out = struct.pack(">hi", SUBSCRIPTION_VERSION, len(wanted.topics)) + b"".join(map(text, wanted.topics))
    return out + struct.pack(">i", -1) + _indexes_by_topic(wanted.owned) + struct.pack(">i", wanted.generation)


def read_subscription(data: bytes) -> Subscription:
    reader = Reader(data)
    _, topics_count = reader.numbers("hi")
    topics = tuple(reader.text() for _ in range(topics_count))
    reader.bytes(reader.number("i"))
    owned = tuple(_read_indexes_by_topic(reader))
    return Subscription(topics=topics, owned=owned, generation=reader.number("i"))


def assignment(places: Iterable[Place]) -> bytes:
    return struct.pack(">h", ASSIGNMENT_VERSION) + _indexes_by_topic(places) + struct.pack(">i", -1)


def read_assignment(data: bytes) -> list[Place]:
    """None where the leader assigned nothing."""
    if not data:
        return []
    reader = Reader(data)
    reader.number("h")
    return _read_indexes_by_topic(reader)


# Requests and answers.


def find_coordinator(group_id: str) -> bytes:
    return text(group_id) + struct.pack(">b", GROUP)


def read_coordinator(data: bytes) -> tuple[int, str]:
    """Error and host."""
    reader = Reader(data)
    _, error = reader.numbers("ih")
    reader.text()
    reader.number("i")
    return error, reader.text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a member is to its group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """Or member epoch."""

    def packed(self) -> bytes:
        """As Heartbeat, SyncGroup and OffsetCommit begin."""
        head = text(self.group_id) + struct.pack(">i", self.generation)
        return head + text(self.member_id) + nullable_text(self.instance_id)


def join_group(who: Identity, *, session_ms: int, rebalance_ms: int, protocols: Sequence[tuple[str, bytes]]) -> bytes:
    out = text(who.group_id) + struct.pack(">ii", session_ms, rebalance_ms) + text(who.member_id)
    out += nullable_text(who.instance_id) + text("consumer") + struct.pack(">i", len(protocols))
    return out + b"".join(text(name) + sized(metadata) for name, metadata in protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a JoinGroup was told."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: tuple[tuple[str, bytes], ...]
    """Member ids and metadata; of the leader alone."""


def read_joined(data: bytes) -> Joined:
    reader = Reader(data)
    _, error, generation = reader.numbers("ihi")
    reader.text()
    leader, member_id = reader.text(), reader.text()
    members: list[tuple[str, bytes]] = []
    for _ in range(reader.number("i")):
        member = reader.text()
        reader.text()
        members.append((member, reader.bytes(reader.number("i"))))
    return Joined(error=error, generation=generation, leader=leader, member_id=member_id, members=tuple(members))


def sync_group(who: Identity, assignments: Mapping[str, bytes]) -> bytes:
    out = who.packed() + struct.pack(">i", len(assignments))
    return out + b"".join(text(member_id) + sized(data) for member_id, data in assignments.items())


def read_synced(data: bytes) -> tuple[int, bytes]:
    """Error and assignment."""
    reader = Reader(data)
    _, error = reader.numbers("ih")
    return error, reader.bytes(reader.number("i"))


def heartbeat(who: Identity) -> bytes:
    return who.packed()


def read_heartbeat(data: bytes) -> int:
    """The error."""
    return Reader(data).numbers("ih")[1]


def leave_group(who: Identity) -> bytes:
    return text(who.group_id) + struct.pack(">i", 1) + text(who.member_id) + nullable_text(who.instance_id)


def read_left(data: bytes) -> int:
    """The error: of the request, or else of its one member."""
    reader = Reader(data)
    _, error, count = reader.numbers("ihi")
    if error or not count:
        return error
    reader.text()
    reader.text()
    return reader.number("h")


def offset_commit(who: Identity, offsets: Mapping[Place, int]) -> bytes:
    topics = by_topic(offsets)
    out = who.packed() + struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        out += text(topic) + struct.pack(">i", len(partitions))
        for partition in partitions:
            out += struct.pack(">iqi", partition, offsets[topic, partition], -1) + NULL_TEXT
    return out


def read_offsets_committed(data: bytes) -> dict[Place, int]:
    """An error for each partition."""
    reader = Reader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    for _ in range(reader.number("i")):
        topic = reader.text()
        for _ in range(reader.number("i")):
            partition, error = reader.numbers("ih")
            found[topic, partition] = error
    return found


def offset_fetch(group_id: str, places: Iterable[Place]) -> bytes:
    return text(group_id) + _indexes_by_topic(places)


def read_offsets_fetched(data: bytes) -> tuple[int, dict[Place, int]]:
    """The first error, and an offset for each partition; -1 where none is committed."""
    reader = Reader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    errors: list[int] = []
    for _ in range(reader.number("i")):
        topic = reader.text()
        for _ in range(reader.number("i")):
            partition, offset, _ = reader.numbers("iqi")
            reader.text()
            errors.append(reader.number("h"))
            found[topic, partition] = offset
    errors.append(reader.number("h"))
    return next((error for error in errors if error), 0), found


# The consumer protocol: compact arrays and texts, tagged fields that nobody fills.


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    encoded = value.encode()
    return varint(len(encoded) + 1) + encoded


def _compact_ints(values: Sequence[int]) -> bytes:
    return varint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


class CompactReader(Reader):
    """Reads one answer of a compact version, from its header's tagged fields on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.tags()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def count(self) -> int:
        """Of an array, or of the bytes of a text; -1 where it is null."""
        return self.varint() - 1

    def text(self) -> str:
        return self.bytes(self.count()).decode()

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.bytes(self.varint())


def consumer_heartbeat(
    who: Identity, *, rebalance_ms: int, topics: Sequence[str] | None, owned: Mapping[bytes, Sequence[int]] | None
) -> bytes:
    """`owned`: partitions by topic id; it and `topics` are None where they have not changed since the last one."""
    out = compact(who.group_id) + compact(who.member_id) + struct.pack(">i", who.generation)
    out += compact(who.instance_id) + compact(None) + struct.pack(">i", rebalance_ms)
    out += b"\x00" if topics is None else varint(len(topics) + 1) + b"".join(map(compact, topics))
    out += compact(None) + compact(None)
    if owned is None:
        return out + b"\x00" + NO_TAGS
    rows = b"".join(topic_id + _compact_ints(partitions) + NO_TAGS for topic_id, partitions in owned.items())
    return out + varint(len(owned) + 1) + rows + NO_TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTold:
    """What a ConsumerGroupHeartbeat was told."""

    error: int
    member_id: str
    epoch: int
    interval_ms: int
    assignment: dict[bytes, list[int]] | None
    """Partitions by topic id; None where they are what they were."""


def read_consumer_heartbeat(data: bytes) -> HeartbeatTold:
    reader = CompactReader(data)
    _, error = reader.numbers("ih")
    reader.text()
    member_id = reader.text()
    epoch, interval_ms, has_assignment = reader.numbers("iib")
    told: dict[bytes, list[int]] | None = None
    if has_assignment >= 0:
        told = {}
        for _ in range(reader.count()):
            topic_id = reader.bytes(16)
            told[topic_id] = [reader.number("i") for _ in range(reader.count())]
            reader.tags()
    return HeartbeatTold(error=error, member_id=member_id, epoch=epoch, interval_ms=interval_ms, assignment=told)


def epoch_commit(who: Identity, offsets: Mapping[Place, int]) -> bytes:
    """OffsetCommit 9, by a member of the consumer protocol."""
    topics = by_topic(offsets)
    out = compact(who.group_id) + struct.pack(">i", who.generation) + compact(who.member_id)
    out += compact(who.instance_id) + varint(len(topics) + 1)
    for topic, partitions in topics.items():
        out += compact(topic) + varint(len(partitions) + 1)
        for partition in partitions:
            out += struct.pack(">iqi", partition, offsets[topic, partition], -1) + compact(None) + NO_TAGS
        out += NO_TAGS
    return out + NO_TAGS


def read_epoch_commit(data: bytes) -> dict[Place, int]:
    """An error for each partition."""
    reader = CompactReader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            partition, error = reader.numbers("ih")
            reader.tags()
            found[topic, partition] = error
        reader.tags()
    return found


def epoch_fetch(who: Identity, places: Iterable[Place]) -> bytes:
    """OffsetFetch 9, of one group, by a member of the consumer protocol."""
    topics = by_topic(places)
    out = varint(2) + compact(who.group_id) + compact(who.member_id) + struct.pack(">i", who.generation)
    out += varint(len(topics) + 1)
    for topic, partitions in topics.items():
        out += compact(topic) + _compact_ints(partitions) + NO_TAGS
    return out + NO_TAGS + struct.pack(">b", 1) + NO_TAGS


def read_epoch_fetch(data: bytes) -> tuple[int, dict[Place, int]]:
    """As `read_offsets_fetched`."""
    reader = CompactReader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    errors: list[int] = []
    for _ in range(reader.count()):
        reader.text()
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                partition, offset, _ = reader.numbers("iqi")
                reader.text()
                errors.append(reader.number("h"))
                reader.tags()
                found[topic, partition] = offset
            reader.tags()
        errors.append(reader.number("h"))
        reader.tags()
    return next((error for error in errors if error), 0), found
