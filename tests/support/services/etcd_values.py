"""Keys and values of an etcd through its gateway, as anybody can have them, and in its file, as a disk can change them.

Rule: nothing of the program is imported. The file is bbolt's: pages without checksums, in which a key of etcd stands as
`mvccpb.KeyValue` (etcd's `api/mvccpb/kv.proto`) with its revisions and its value.
"""

import base64
import json
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GATEWAY_SECONDS_MAX = 30.0
FILE = Path("member", "snap", "db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A key of etcd."""

    key: bytes
    value: bytes
    mod_revision: int


def rows_of(endpoint: str) -> list[Row]:
    answer = ask(endpoint, "range", {"key": as_text(b"\0"), "range_end": as_text(b"\0")})
    rows = answer.get("kvs", [])
    assert isinstance(rows, list)
    return [
        Row(
            key=base64.b64decode(row["key"]),
            value=base64.b64decode(row.get("value", "")),
            mod_revision=int(row["mod_revision"]),
        )
        for row in rows
    ]


def pairs_of(endpoint: str) -> dict[bytes, bytes]:
    return {row.key: row.value for row in rows_of(endpoint)}


def ask(endpoint: str, what: str, body: Mapping[str, object]) -> dict[str, object]:
    request = urllib.request.Request(f"http://{endpoint}/v3/kv/{what}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=GATEWAY_SECONDS_MAX) as response:
        found: dict[str, object] = json.loads(response.read())
    return found


def as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def flip_in_file(folder: Path, key: bytes, value: bytes, bit: int, *, is_in_key: bool = False) -> None:
    """Turn over one bit of a key's value, or of the key, wherever both stand in the database of a member that does not
    run.
    """
    file = folder / FILE
    data = bytearray(file.read_bytes())
    places = [match.start("key" if is_in_key else "value") for match in _stored(key, value).finditer(data)]
    assert places, f"etcd's file has no {key!r}"
    for place in places:
        data[place + bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def is_in_file(folder: Path, pairs: Mapping[bytes, bytes]) -> bool:
    """Whether etcd has written there what it has answered, which it does ten times a second."""
    data = (folder / FILE).read_bytes()
    return all(_stored(key, value).search(data) for key, value in pairs.items())


def _stored(key: bytes, value: bytes) -> re.Pattern[bytes]:
    return re.compile(
        re.escape(b"\x0a" + _varint(len(key)))
        + b"(?P<key>%b)" % re.escape(key)
        + rb"(?:[\x10\x18\x20][\x80-\xff]*[\x00-\x7f]){3}"  # revisions of creation and of change, version
        + re.escape(b"\x2a" + _varint(len(value)))
        + b"(?P<value>%b)" % re.escape(value)
    )


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
