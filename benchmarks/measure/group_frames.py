"""Requests of members of classic groups as bytes, and what their answers say.

Rule: pure. Only versions that are not flexible, and of an answer only what a member needs: so a driver of thousands of
members is cheaper than the broker that it measures. Fields: the messages' JSON definitions in Apache Kafka 4.3.1.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DELETE_GROUPS = (
    8,
    10,
    11,
    12,
    13,
    14,
    42,
)
VERSIONS = {
    OFFSET_COMMIT: 7,
    FIND_COORDINATOR: 0,
    JOIN_GROUP: 5,
    HEARTBEAT: 3,
    LEAVE_GROUP: 3,
    SYNC_GROUP: 3,
    DELETE_GROUPS: 1,
}
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
CONSUMER_VERSION = 0
"""Of what members tell each other: ConsumerProtocolSubscription and ConsumerProtocolAssignment."""
NULL_STRING = b"\xff\xff"
NULL_BYTES = b"\xff\xff\xff\xff"
_ERROR_AT_4 = struct.Struct(">4xh")
_HEADER = struct.Struct(">ihhi")
_COMMITTED = struct.Struct(">iqi")


class Joined(NamedTuple):
    """What a JoinGroup was answered. `members`: the ids of all, where this member leads them."""

    error_code: int
    generation: int
    leader: str
    member_id: str
    members: Sequence[str]


def frame(api_key: int, body: bytes) -> bytes:
    """A whole request without a client id; its correlation id is 0: answers come in order."""
    return _HEADER.pack(10 + len(body), api_key, VERSIONS[api_key], 0) + NULL_STRING + body


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def sized(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def find_coordinator(group: str) -> bytes:
    return frame(FIND_COORDINATOR, text(group))


def join(group: str, member_id: str, topic: str, *, session_ms: int, rebalance_ms: int) -> bytes:
    subscription = struct.pack(">hi", CONSUMER_VERSION, 1) + text(topic) + NULL_BYTES
    body = text(group) + struct.pack(">ii", session_ms, rebalance_ms) + text(member_id) + NULL_STRING
    return frame(JOIN_GROUP, body + text(PROTOCOL_TYPE) + struct.pack(">i", 1) + text(PROTOCOL) + sized(subscription))


def sync(group: str, generation: int, member_id: str, topic: str, members: Sequence[str]) -> bytes:
    """From a leader each of `members` gets one partition, in their order; from others there are none."""
    assignments = [
        text(each)
        + sized(struct.pack(">hi", CONSUMER_VERSION, 1) + text(topic) + struct.pack(">ii", 1, row) + NULL_BYTES)
        for row, each in enumerate(members)
    ]
    return frame(SYNC_GROUP, _as_member(group, generation, member_id) + _array(assignments))


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    return frame(HEARTBEAT, _as_member(group, generation, member_id))


class CommitFrame:
    """An OffsetCommit of one partition, made again and again with another offset."""

    def __init__(self, group: str, generation: int, member_id: str, topic: str, partition: int) -> None:
        body = _as_member(group, generation, member_id) + struct.pack(">i", 1) + text(topic)
        self._frame = bytearray(frame(OFFSET_COMMIT, body + _array([_COMMITTED.pack(partition, 0, -1) + NULL_STRING])))

    def with_offset(self, offset: int) -> bytes:
        struct.pack_into(">q", self._frame, len(self._frame) - 14, offset)
        return bytes(self._frame)


def leave(group: str, member_ids: Sequence[str]) -> bytes:
    return frame(LEAVE_GROUP, text(group) + _array([text(member_id) + NULL_STRING for member_id in member_ids]))


def delete_groups(groups: Sequence[str]) -> bytes:
    return frame(DELETE_GROUPS, _array([text(group) for group in groups]))


def read_error(answer: bytes) -> int:
    """The error code of SyncGroup, Heartbeat and LeaveGroup. `answer`: what follows the correlation id."""
    (error_code,) = _ERROR_AT_4.unpack_from(answer)
    return int(error_code)


def read_coordinator_error(answer: bytes) -> int:
    return int.from_bytes(answer[:2], "big", signed=True)


def read_commit_error(answer: bytes) -> int:
    """The error code of the only partition: the answer's last field."""
    return int.from_bytes(answer[-2:], "big", signed=True)


def read_joined(answer: bytes) -> Joined:
    error_code, generation = struct.unpack_from(">4xhi", answer)
    position, texts = 10, list[str]()
    for _ in range(3):
        value, position = _read_text(answer, position)
        texts.append(value)
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    members = []
    for _ in range(count):
        member_id, position = _read_text(answer, position)
        _, position = _read_text(answer, position)
        (size,) = struct.unpack_from(">i", answer, position)
        position += 4 + size
        members.append(member_id)
    return Joined(int(error_code), int(generation), texts[1], texts[2], members)


def _as_member(group: str, generation: int, member_id: str) -> bytes:
    return text(group) + struct.pack(">i", generation) + text(member_id) + NULL_STRING


def _array(elements: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def _read_text(view: bytes, position: int) -> tuple[str, int]:
    """A string; a null one is empty."""
    (size,) = struct.unpack_from(">h", view, position)
    position += 2
    end = position + max(0, size)
    return view[position:end].decode(), end
