"""Avro object container files: rows to bytes, and back.

Rule: the same rows under the same key give the same bytes. The only module that reads Avro which comes from the bucket
(safety rule S20): a file's checksum is compared before fastavro sees it; of a file without one it raises what it likes,
of its own, of zlib and of Python, so all of it is `Undecodable` here.

Specification: Apache Avro's specification, "Object Container Files".
"""

import hashlib
import io
from collections.abc import Mapping
from typing import Any

from crc32c import crc32c
from fastavro import reader, writer
from fastavro.types import Schema

from protocol.decoding import Undecodable

CODEC = "deflate"
"""Iceberg's default, there called gzip."""
CHECKSUM = "penstock.crc32c"
"""In a file's header: CRC-32C of the object's key and of the whole file, eight hexadecimal digits that count as zeros.
Files of before have none."""
_NO_CHECKSUM = "0" * 8
# A string of Avro begins with its length, twice that as it is signed. JSON in front of it has no such character.
_IN_FRONT = bytes([2 * len(CHECKSUM)]) + CHECKSUM.encode() + bytes([2 * len(_NO_CHECKSUM)])


def encode_rows(schema: Schema, rows: list[dict[str, Any]], key: str, header: Mapping[str, str]) -> bytes:
    """The file that an object `key` holds."""
    sink = io.BytesIO()
    # What parts the blocks is random by custom, so as not to be in the data; a key's digest does as well.
    marker = hashlib.sha256(key.encode()).digest()[:16]
    writer(sink, schema, rows, codec=CODEC, metadata={CHECKSUM: _NO_CHECKSUM, **header}, sync_marker=marker)
    data = sink.getvalue()
    first = data.index(_IN_FRONT) + len(_IN_FRONT)
    return _with_digits(data, first, b"%08x" % _checksum(data, key))


def decode_rows(data: bytes, key: str) -> tuple[Mapping[str, str], list[Any]]:
    """The header and the rows of the file that an object `key` holds, by the schema that it holds itself.

    Raises `Undecodable`, also where it is the file of another object.
    """
    first = data.find(_IN_FRONT) + len(_IN_FRONT)
    is_checked = first >= len(_IN_FRONT)
    if is_checked:
        digits = data[first : first + len(_NO_CHECKSUM)]
        checksum = b"%08x" % _checksum(_with_digits(data, first, _NO_CHECKSUM.encode()), key)
        if digits != checksum:
            raise Undecodable(
                f"its checksum is {checksum.decode()}, it says {digits!r}: it is damaged, or another object's"
            )
    try:
        found = reader(io.BytesIO(data))
        header, rows = dict(found.metadata), list(found)
    except Exception as error:
        raise Undecodable(f"it cannot be read as Avro, it is damaged: {error!r}") from error
    if (header.pop(CHECKSUM, None) is not None) != is_checked:
        raise Undecodable("its checksum is not where its header says, it is damaged")
    return header, rows


def _with_digits(data: bytes, first: int, digits: bytes) -> bytes:
    return data[:first] + digits + data[first + len(digits) :]


def _checksum(data: bytes, key: str) -> int:
    return crc32c(data, crc32c(key.encode()))
