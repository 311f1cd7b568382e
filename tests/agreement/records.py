"""The records of the agreement run, and the one shape in which every view of them is compared.

Rule: a value says which record it is, so that nothing else need be believed: who sent it in which transaction as which
one, to where, when, and with which key. No two records have the same value.

A value is 32 bytes, then padding: producer u32, transaction u32, number u32, topic u16, partition u16, milliseconds
i64, the key's 8 bytes (zeros for none), every number big-endian.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

HEAD = Struct(">IIIHHq8s")
HEAD_TYPE = np.dtype(
    [
        ("producer", ">u4"),
        ("transaction", ">u4"),
        ("number", ">u4"),
        ("topic", ">u2"),
        ("partition", ">u2"),
        ("milliseconds", ">i8"),
        ("key", "S8"),
    ]
)
KEY_BYTES = 8
KEY_FIRST = HEAD.size - KEY_BYTES
NO_KEY = bytes(KEY_BYTES)
PADDING = b"penstock-agreement-" * 20
PREFIX = "agree-"
NO_KEY_EVERY, HEADERS_EVERY = 11, 4

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VIEW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.large_binary()),
        ("headers", HEADERS),
    ]
)
"""A view: rows in any order; milliseconds; no headers are null or an empty list, which mean the same."""
TRANSACTIONS = pa.schema(
    [
        ("producer", pa.int64()),
        ("transaction", pa.int64()),
        ("count", pa.int64()),
        ("outcome", pa.int8()),
        ("began_ms", pa.int64()),
        ("ended_ms", pa.int64()),
    ]
)
"""What producers noted, a row for each transaction; `count` is of records handed over. The times are of the
transaction's begin, and of the moment when its end was known."""
COMMITTED, ABORTED, UNKNOWN = 1, 0, -1
"""Outcomes: acknowledged as committed; surely aborted; asked for, and never answered."""

Numbers = NDArray[np.int64]
Headers = list[tuple[str, str | bytes | None]]


def topic_name(number: int) -> str:
    return f"{PREFIX}{number:03}"


def topic_number(name: str) -> int:
    return int(name.removeprefix(PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record as its producer hands it over."""

    producer: int
    transaction: int
    number: int
    topic: int
    partition: int
    milliseconds: int

    def key(self) -> bytes | None:
        if self.number % NO_KEY_EVERY == 0:
            return None
        return b"k%07d" % ((self.transaction * 31 + self.number * 7) % 1000)

    def value(self) -> bytes:
        place = (self.topic, self.partition, self.milliseconds, self.key() or NO_KEY)
        head = HEAD.pack(self.producer, self.transaction, self.number, *place)
        return head + PADDING[: (self.number * 37 + self.transaction) % len(PADDING)]

    def headers(self) -> Headers | None:
        """None for most; some have the same key twice, some no value."""
        if self.number % HEADERS_EVERY:
            return None
        trace = b"%d" % self.number if self.number % (2 * HEADERS_EVERY) else None
        headers: Headers = [("trace", trace), ("producer", b"%d" % self.producer), ("trace", b"")]
        return headers[: 1 + self.number % 3]


def are_ours(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which values are long enough to say anything."""
    long_enough: NDArray[np.bool_] = pc.fill_null(
        pc.greater_equal(pc.binary_length(values), HEAD.size), False
    ).to_numpy()
    return long_enough


def heads(values: pa.ChunkedArray) -> NDArray[np.void]:
    """What the values say, as an array of `HEAD_TYPE`; each has to be one of ours (`are_ours`)."""
    cut = pc.binary_slice(values, 0, HEAD.size)
    pieces = [np.frombuffer(_payload(chunk), dtype=HEAD_TYPE) for chunk in cut.chunks if len(chunk)]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=HEAD_TYPE)


def columns_of(found: NDArray[np.void], names: Sequence[str]) -> list[Numbers]:
    """Columns of what `heads` found, as int64."""
    return [found[name].astype(np.int64) for name in names]


def identities(found: NDArray[np.void]) -> Numbers:
    """One number for each record: producer below 2**12, transaction below 2**28, number below 2**23."""
    producer, transaction, number = columns_of(found, ["producer", "transaction", "number"])
    return identity(producer, transaction, number)


def identity(producer: Numbers, transaction: Numbers, number: Numbers) -> Numbers:
    return (producer << 51) | (transaction << 23) | number


def name_of(identified: int) -> str:
    """An identity in words."""
    transaction, number = identified >> 23 & (1 << 28) - 1, identified & (1 << 23) - 1
    return f"producer {identified >> 51}, transaction {transaction}, record {number}"


def _payload(chunk: pa.Array) -> memoryview:
    """The bytes of an array of long binary values, one behind the other."""
    _, offsets, payload = chunk.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return memoryview(payload)[int(ends[0]) : int(ends[-1])]
