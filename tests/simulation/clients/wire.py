"""The few messages that simulated clients speak, in versions without tagged fields.

Rule: plain structs, apart from the codecs of `protocol`, which are under test. Layouts: https://kafka.apache.org/protocol
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 1, 2, 19, 20, 21, 22
CREATE_PARTITIONS = 37
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 7, 5, 1
CREATE_PARTITIONS_VERSION = 0
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, DELETE_RECORDS_VERSION, INIT_PRODUCER_ID_VERSION = 2, 1, 1, 1
LATEST, EARLIEST = -1, -2
HIGH_WATERMARK = -1
"""As the offset of DeleteRecords."""

Place = tuple[str, int]
"""Topic and partition."""


def text(value: str) -> bytes:
    """A string with its length."""
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


class Reader:
    """Reads one answer from its first byte to its last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        """Big-endian numbers."""
        found = struct.unpack_from(">" + form, self._data, self._position)
        self._position += struct.calcsize(">" + form)
        return found

    def number(self, form: str) -> int:
        return self.numbers(form)[0]

    def text(self) -> str:
        """Empty where it is null."""
        return self.bytes(self.number("h")).decode()

    def bytes(self, count: int) -> bytes:
        """None of them where the count is -1."""
        found = self._data[self._position : self._position + max(count, 0)]
        self._position += max(count, 0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What one partition of a Produce was told."""

    error: int
    base_offset: int
    append_time_ms: int


def produce(batches: Sequence[tuple[Place, bytes]], timeout_ms: int) -> bytes:
    """One batch for each partition."""
    out = struct.pack(">hhii", -1, -1, timeout_ms, len(batches))
    for (topic, partition), batch in batches:
        out += text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    return out


def read_produced(data: bytes) -> dict[Place, Produced]:
    reader = Reader(data)
    found: dict[Place, Produced] = {}
    for _ in range(reader.number("i")):
        topic = reader.text()
        for _ in range(reader.number("i")):
            partition, error, base_offset, append_time_ms, _ = reader.numbers("ihqqq")
            found[topic, partition] = Produced(error=error, base_offset=base_offset, append_time_ms=append_time_ms)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition of a Fetch was told."""

    error: int
    high_watermark: int
    log_start: int
    records: bytes


def fetch(wanted: Sequence[tuple[Place, int]], *, max_wait_ms: int, bytes_max: int) -> bytes:
    """From an offset of each partition."""
    out = struct.pack(">iiiibi", -1, max_wait_ms, 1, bytes_max, 0, len(wanted))
    for (topic, partition), offset in wanted:
        out += text(topic) + struct.pack(">iiqqi", 1, partition, offset, -1, bytes_max)
    return out


def read_fetched(data: bytes) -> dict[Place, Fetched]:
    reader = Reader(data)
    reader.number("i")
    found: dict[Place, Fetched] = {}
    for _ in range(reader.number("i")):
        topic = reader.text()
        for _ in range(reader.number("i")):
            partition, error, high_watermark, _, log_start = reader.numbers("ihqqq")
            reader.numbers("qq" * max(reader.number("i"), 0))
            records = reader.bytes(reader.number("i"))
            found[topic, partition] = Fetched(
                error=error, high_watermark=high_watermark, log_start=log_start, records=records
            )
    return found


def list_offset(place: Place, timestamp: int) -> bytes:
    return struct.pack(">ii", -1, 1) + text(place[0]) + struct.pack(">iiq", 1, place[1], timestamp)


def read_offset(data: bytes) -> tuple[int, int]:
    """Error and offset."""
    reader = Reader(data)
    reader.number("i")
    reader.text()
    _, _, error, _, offset = reader.numbers("iihqq")
    return error, offset


def create_topic(name: str, partitions: int, configs: Sequence[tuple[str, str]], timeout_ms: int) -> bytes:
    out = struct.pack(">i", 1) + text(name) + struct.pack(">ihii", partitions, 1, 0, len(configs))
    for key, value in configs:
        out += text(key) + text(value)
    return out + struct.pack(">ib", timeout_ms, 0)


def read_created(data: bytes) -> int:
    """The error."""
    reader = Reader(data)
    reader.numbers("ii")
    reader.text()
    return reader.number("h")


def delete_topic(name: str, timeout_ms: int) -> bytes:
    return struct.pack(">i", 1) + text(name) + struct.pack(">i", timeout_ms)


read_deleted = read_created


def create_partitions(name: str, count: int, timeout_ms: int) -> bytes:
    """Without assignments."""
    return struct.pack(">i", 1) + text(name) + struct.pack(">iiib", count, -1, timeout_ms, 0)


read_grown = read_created


def delete_records(place: Place, offset: int, timeout_ms: int) -> bytes:
    return struct.pack(">i", 1) + text(place[0]) + struct.pack(">iiqi", 1, place[1], offset, timeout_ms)


def read_records_deleted(data: bytes) -> tuple[int, int]:
    """Error and low watermark."""
    reader = Reader(data)
    reader.numbers("ii")
    reader.text()
    _, _, low_watermark, error = reader.numbers("iiqh")
    return error, low_watermark


def init_producer_id() -> bytes:
    return struct.pack(">hi", -1, 60_000)


def read_producer_id(data: bytes) -> tuple[int, int]:
    """Error and producer id."""
    _, error, producer_id, _ = Reader(data).numbers("ihqh")
    return error, producer_id
