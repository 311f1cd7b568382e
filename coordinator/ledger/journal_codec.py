"""The bytes of a ledger in a journal: a record for each group of entries, and one for each change of anything else.

Rule: pure. The journal has a checksum of each record; what these hold beyond that shows whether one is missing. Groups
count the appends, and name the newest state before them. Integers are little-endian.

    group   format u8 | position u64 | appends u64 | state u64 | session u64 | number of the first entry u64 |
            entries u32 | payload bytes u32 for each entry | payloads
    state   format u8 | MessagePack of `StoredState`
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from coordinator.ledger.port import (
    Head,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    NewerRules,
    SnapshotPointer,
    position_first,
)
from protocol.decoding import MsgpackDecoder, Undecodable
from protocol.types import Position, SessionId

FORMAT: Final = 1
_GROUP: Final = struct.Struct("<BQQQQQI")
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group of entries that were appended together."""

    position: Position
    appends_count: int
    """The number of appends up to this one."""
    state_number: int
    """The newest state before it."""
    session: SessionId
    entries: tuple[LedgerEntry, ...]

    def records(self) -> tuple[LedgerRecord, ...]:
        return tuple(
            LedgerRecord(position=self.position, session=self.session, number=entry.number, payload=entry.payload)
            for entry in self.entries
        )


class StoredPointer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`coordinator.ledger.port.SnapshotPointer`, as it is stored."""

    position: int
    object_key: str
    appends_count: int
    digest: bytes


class StoredState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the ledger knows beside its entries. The newest one counts, and each change makes a new one."""

    number: int
    """States are counted, so that a missing one is noticed."""
    cluster_id: str
    incarnation: int
    position_last: int
    """The newest position that an append or a session got."""
    position: int
    """The position of the newest append."""
    appends_count: int
    trimmed: int
    """The position of the newest entry that was dropped."""
    trimmed_appends_count: int
    """The number of appends up to that one."""
    bucket_id: str = ""
    is_fenced: bool = False
    pointer: StoredPointer | None = None

    @property
    def identity(self) -> LedgerIdentity:
        return LedgerIdentity(cluster_id=self.cluster_id, incarnation=self.incarnation, bucket_id=self.bucket_id)

    @property
    def head(self) -> Head:
        return Head(position=Position(self.position), appends_count=self.appends_count)

    @property
    def snapshot(self) -> SnapshotPointer | None:
        pointer = self.pointer
        if pointer is None:
            return None
        return SnapshotPointer(
            position=Position(pointer.position),
            object_key=pointer.object_key,
            appends_count=pointer.appends_count,
            digest=pointer.digest,
        )


_state_decoder = MsgpackDecoder(StoredState)


def first_state(identity: LedgerIdentity, pointer: SnapshotPointer | None, *, number: int) -> StoredState:
    """The state with which an incarnation begins, without entries."""
    first = position_first(identity.incarnation)
    return StoredState(
        number=number,
        cluster_id=identity.cluster_id,
        incarnation=identity.incarnation,
        bucket_id=identity.bucket_id,
        position_last=first,
        position=first,
        appends_count=0,
        trimmed=first,
        trimmed_appends_count=0,
        pointer=None if pointer is None else stored_pointer(pointer),
    )


def stored_pointer(pointer: SnapshotPointer) -> StoredPointer:
    return StoredPointer(
        position=pointer.position,
        object_key=pointer.object_key,
        appends_count=pointer.appends_count,
        digest=pointer.digest,
    )


def encode_state(state: StoredState) -> bytes:
    return bytes([FORMAT]) + msgspec.msgpack.encode(state)


def decode_state(payload: bytes) -> StoredState:
    """The state that `encode_state` was given. Raises `Undecodable`, and `NewerRules` for a newer format."""
    _check_format(payload)
    return _state_decoder.decode(memoryview(payload)[1:])


def encode_group(group: StoredGroup) -> Sequence[bytes]:
    """The bytes of a group, in parts that are not joined."""
    entries = group.entries
    head = _GROUP.pack(
        FORMAT, group.position, group.appends_count, group.state_number, group.session, entries[0].number, len(entries)
    )
    lengths = struct.pack(f"<{len(entries)}I", *(len(entry.payload) for entry in entries))
    return [head, lengths, *(entry.payload for entry in entries)]


def decode_group(payload: bytes) -> StoredGroup:
    """The group that `encode_group` was given. Raises `Undecodable`, and `NewerRules` for a newer format."""
    _check_format(payload)
    try:
        _, position, appends_count, state_number, session, number_first, count = _GROUP.unpack_from(payload)
        lengths: tuple[int, ...] = struct.unpack_from(f"<{count}I", payload, _GROUP.size)
    except struct.error as error:
        raise Undecodable(f"a group of entries ends within its header: {error}") from error
    at = _GROUP.size + count * _LENGTH_BYTES
    if at + sum(lengths) != len(payload):
        raise Undecodable(f"a group of {count} entries has {len(payload)} bytes instead of {at + sum(lengths)}")
    entries: list[LedgerEntry] = []
    for number, length in enumerate(lengths, number_first):
        entries.append(LedgerEntry(number=number, payload=payload[at : at + length]))
        at += length
    return StoredGroup(
        position=Position(position),
        appends_count=appends_count,
        state_number=state_number,
        session=SessionId(session),
        entries=tuple(entries),
    )


def _check_format(payload: bytes) -> None:
    """Raise where a record has another format. Its checksum was right: a newer program has written a higher number."""
    if not payload or payload[0] < FORMAT:
        raise Undecodable(f"a record of the ledger begins with {payload[:1].hex() or 'nothing'} instead of its format")
    if payload[0] > FORMAT:
        raise NewerRules(
            f"the ledger in the journal has format {payload[0]}, this program knows {FORMAT}: use the version that "
            "wrote it"
        )
