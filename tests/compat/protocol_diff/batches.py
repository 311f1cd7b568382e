"""Record batches of format v2, written with one thing wrong at a time, and read for comparison.

Rule: apart from `protocol.records.batch` on purpose. Layout: KIP-98.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

from tests.compat.protocol_diff.messages import uvarint, varint

TIMESTAMP = 1_700_000_000_000
GZIP = 1
HEADER_BYTES = 61


def _crc32c_table() -> list[int]:
    table = []
    for number in range(256):
        rest = number
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
        table.append(rest)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def batch(
    values: list[bytes | None],
    *,
    keys: list[bytes | None] | None = None,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    transactional: bool = False,
    control: bool = False,
    compression: int = 0,
    timestamp: int = TIMESTAMP,
    max_timestamp: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    base_offset: int = 0,
    bad_crc: bool = False,
    count: int | None = None,
    last_delta: int | None = None,
    cut: int = 0,
    behind: bytes = b"",
    packed: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """One batch; the odd arguments make it wrong in one way.

    behind: bytes after the last record; packed: what becomes of the records' bytes, for a codec in `compression`.
    """
    records = b"".join(_record(n, keys[n] if keys else None, value) for n, value in enumerate(values)) + behind
    if packed is not None:
        records = packed(records)
    elif compression == GZIP:
        packer = zlib.compressobj(wbits=31)
        records = packer.compress(records) + packer.flush()
    attributes |= compression | (0x10 if transactional else 0) | (0x20 if control else 0)
    n = len(values)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        n - 1 if last_delta is None else last_delta,
        timestamp,
        timestamp + max(n - 1, 0) if max_timestamp is None else max_timestamp,
        pid,
        epoch,
        seq,
        n if count is None else count,
    )
    tail += records
    crc = crc32c(tail) ^ (1 if bad_crc else 0)
    out = struct.pack(">qiibI", base_offset, 4 + 1 + 4 + len(tail), 0, magic, crc) + tail
    return out[: len(out) - cut] if cut else out


def batches(data: bytes) -> list[dict[str, Any]]:
    """Headers of the whole batches in fetched records, and the records where they are plain or gzip."""
    out = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        end = at + 12 + size
        if end > len(data):
            break
        attributes, last, first_ts, max_ts, pid, epoch, seq, count = struct.unpack_from(">hiqqqhii", data, at + 21)
        one = {
            "base": base,
            "last": base + last,
            "magic": data[at + 16],
            "attributes": attributes,
            "pid": pid,
            "epoch": epoch,
            "seq": seq,
            "count": count,
            "first_ts": first_ts,
            "max_ts": max_ts,
            "crc_ok": struct.unpack_from(">I", data, at + 17)[0] == crc32c(data[at + 21 : end]),
        }
        payload = data[at + HEADER_BYTES : end]
        if attributes & 7 in (0, GZIP):
            try:
                one["records"] = _records(zlib.decompress(payload, 31) if attributes & 7 == GZIP else payload, count)
            except (IndexError, zlib.error):  # not in one stream, say
                one["records"] = payload
        out.append(one)
        at = end
    return out


def _record(number: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + varint(number) + varint(number) + _blob(key) + _blob(value) + varint(0)
    return varint(len(body)) + body


def _blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else uvarint(len(data) << 1) + data


def _records(data: bytes, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7

    def blob() -> bytes | None:
        nonlocal at
        size = number()
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    out = []
    for _ in range(count):
        end = number()
        end += at
        at += 1
        number()
        number()
        out.append((blob(), blob()))
        at = end
    return out
