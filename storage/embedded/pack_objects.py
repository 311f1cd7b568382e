"""Objects in packs, and where they lie."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.embedded.pack_format import PackRecord
from storage.object_store import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class PackObject:
    """The object to append."""

    key: str
    parts: Sequence[Buffer]
    modified_ms: int


@dataclass(slots=True, kw_only=True, eq=False)
class Pack:
    """A file of the folder. `live_count` is its owner's: how many of its objects can be asked for."""

    number: int
    nonce: bytes
    live_count: int = 0
    is_damaged: bool = False
    """Something in it cannot be read, or marked as deleted. Its file is not used again."""
    is_set_aside: bool = False
    """Nor is it removed: what objects it held is not known for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLocation:
    """Where an object lies; positions are the file's."""

    pack: Pack
    record_first: int
    payload_first: int
    payload_bytes: int
    payload_crc: int
    modified_ms: int


def place_of(record: PackRecord, pack: Pack, position: int) -> PackLocation:
    return PackLocation(
        pack=pack,
        record_first=position,
        payload_first=position + record.payload_first,
        payload_bytes=record.payload_bytes,
        payload_crc=record.payload_crc,
        modified_ms=record.modified_ms,
    )
