"""Encodes rows as Avro object container files, and decodes them.

The same rows under the same key give the same bytes. Only this module decodes Avro files of the bucket (safety rule
S20). It compares a file's checksum before fastavro sees the file. In a file without a checksum, fastavro may raise any
exception of its own, of zlib or of Python; all of them become `Undecodable` here.

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
"""Iceberg's default, which it calls gzip."""
CHECKSUM = "penstock.crc32c"
"""The key in a file's header of the CRC-32C of the object's key and the whole file, as eight hexadecimal digits that
count as zeros. Files from before checksums do not have it."""
_NO_CHECKSUM = "0" * 8
# An Avro string begins with its length, doubled by the zigzag encoding. The JSON before it has no such character.
_IN_FRONT = bytes([2 * len(CHECKSUM)]) + CHECKSUM.encode() + bytes([2 * len(_NO_CHECKSUM)])


def encode_rows(schema: Schema, rows: list[dict[str, Any]], key: str, header: Mapping[str, str]) -> bytes:
    """The bytes of the Avro file to put under `key`. `header`: entries of its metadata."""
    sink = io.BytesIO()
    # Writers usually draw the sync marker at random, so that the data does not contain it. A digest of the key is as
    # unlikely in the data, and the same each time.
    marker = hashlib.sha256(key.encode()).digest()[:16]
    writer(sink, schema, rows, codec=CODEC, metadata={CHECKSUM: _NO_CHECKSUM, **header}, sync_marker=marker)
    data = sink.getvalue()
    first = data.index(_IN_FRONT) + len(_IN_FRONT)
    return _with_digits(data, first, b"%08x" % _checksum(data, key))


def decode_rows(data: bytes, key: str) -> tuple[Mapping[str, str], list[Any]]:
    """The header and the rows of the file under `key`, decoded with the file's own schema.

    Raises `Undecodable`, also where the file was written for another key.
    """
    first = data.find(_IN_FRONT) + len(_IN_FRONT)
    is_checked = first >= len(_IN_FRONT)
    if is_checked:
        digits = data[first : first + len(_NO_CHECKSUM)]
        checksum = b"%08x" % _checksum(_with_digits(data, first, _NO_CHECKSUM.encode()), key)
        if digits != checksum:
            raise Undecodable(
                f"its checksum is {checksum.decode()}, its header says {digits!r}: it is damaged, or another object's"
            )
    try:
        avro = reader(io.BytesIO(data))
        header, rows = dict(avro.metadata), list(avro)
    except Exception as error:
        raise Undecodable(f"it is no readable Avro file, it is damaged: {error!r}") from error
    # The search above goes over the raw bytes: the header has to agree that the file has a checksum, or has none.
    if (header.pop(CHECKSUM, None) is not None) != is_checked:
        raise Undecodable("its checksum is not where its header says, it is damaged")
    return header, rows


def _with_digits(data: bytes, first: int, digits: bytes) -> bytes:
    return data[:first] + digits + data[first + len(digits) :]


def _checksum(data: bytes, key: str) -> int:
    return crc32c(data, crc32c(key.encode()))
