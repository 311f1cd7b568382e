"""The packs of an embedded store, read and changed by their description alone (docstring of
`storage.embedded.pack_format`).

Rule: nothing is imported that reads or writes packs, so that an error there does not agree with itself here.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from pyarrow import fs

PACK_FILE = re.compile(r"\.packs/(?P<number>[0-9a-f]{16})\.pack")
_PACK = struct.Struct("<8sQ16sI4x")
_RECORD = struct.Struct("<4sI16sQqIHBx")
_STATE_FIRST = _RECORD.size - 2
_DEAD = b"\xb3"
_NONCE = bytes(range(16))


class PackDamaged(Exception):
    """An object is there and its bytes are not those that were put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedObject:
    """A live object of a pack; positions are the file's."""

    file: str
    record_first: int
    payload_first: int
    payload_bytes: int
    payload_crc: int


def live_objects(bucket: fs.FileSystem, files: set[str]) -> dict[str, PackedObject]:
    """The objects by key; of two with the same key the later one. A broker may write to the packs meanwhile."""
    found: dict[str, PackedObject] = {}
    for name in sorted(filter(PACK_FILE.fullmatch, files)):
        try:
            with bucket.open_input_file(name) as file:
                found |= {key: stored for key, stored, is_live in _records(file, name) if is_live}
        except FileNotFoundError:
            continue  # without objects, it got another name since the files were listed
    return found


def read_packed(bucket: fs.FileSystem, stored: PackedObject) -> bytes:
    """The object's bytes. Raises `PackDamaged`."""
    with bucket.open_input_file(stored.file) as file:
        payload: bytes = file.read_at(stored.payload_bytes, stored.payload_first)
    if crc32c(payload) != stored.payload_crc:
        raise PackDamaged(f"{stored.file}: the checksum of the object at {stored.payload_first} is wrong")
    return payload


def plant_object(store: Path, key: str, payload: bytes) -> None:
    """Add an object to the store in the folder `store`, in a pack of its own. No broker runs."""
    numbers = [int(path.stem, 16) for path in (store / ".packs").glob("*.pack")]
    number, name = max(numbers, default=-1) + 1, key.encode()
    begin = struct.pack("<8sQ16s", b"PNSTPACK", number, _NONCE)
    fields = struct.pack("<16sQqIH", _NONCE, len(payload), 0, crc32c(payload), len(name))
    record = b"PREC" + struct.pack("<I", crc32c(fields + name)) + fields + b"L\0" + name + payload
    content = begin + struct.pack("<I4x", crc32c(begin)) + record + bytes(-len(record) % 8)
    (store / ".packs" / f"{number:016x}.pack").write_bytes(content)


def remove_object(store: Path, stored: PackedObject) -> None:
    """Mark an object as deleted."""
    _overwrite(store, stored, stored.record_first + _STATE_FIRST, _DEAD)


def damage_object(store: Path, stored: PackedObject, byte: int, content: bytes) -> None:
    """Replace bytes of an object, from its byte `byte` on."""
    _overwrite(store, stored, stored.payload_first + byte, content)


def _overwrite(store: Path, stored: PackedObject, position: int, content: bytes) -> None:
    with (store / stored.file).open("r+b") as file:
        file.seek(position)
        file.write(content)


def _records(file: pa.NativeFile, name: str) -> Iterator[tuple[str, PackedObject, bool]]:
    """Keys, places, and whether they are live, up to the first record that is not whole or not this pack's."""
    file_bytes = file.size()
    begin = file.read_at(_PACK.size, 0)
    if len(begin) < _PACK.size:
        return
    magic, number, nonce, crc = _PACK.unpack(begin)
    if (magic, f".packs/{number:016x}.pack", crc) != (b"PNSTPACK", name, crc32c(begin[:32])):
        return
    position = _PACK.size
    while position + _RECORD.size <= file_bytes:
        header = file.read_at(_RECORD.size, position)
        magic, crc, found_nonce, payload_bytes, _, payload_crc, key_bytes, state = _RECORD.unpack(header)
        key = file.read_at(key_bytes, position + _RECORD.size)
        payload_first = position + _RECORD.size + key_bytes
        if (magic, found_nonce, crc) != (b"PREC", nonce, crc32c(header[8:_STATE_FIRST] + key)):
            return
        if payload_first + payload_bytes > file_bytes:
            return
        stored = PackedObject(
            file=name,
            record_first=position,
            payload_first=payload_first,
            payload_bytes=payload_bytes,
            payload_crc=payload_crc,
        )
        yield key.decode(), stored, state != _DEAD[0]
        position = payload_first + payload_bytes + -(key_bytes + payload_bytes + _RECORD.size) % 8
