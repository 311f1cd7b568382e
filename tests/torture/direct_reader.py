"""Reads and writes a topic through one agent alone, whoever leads its partitions: any agent serves any partition.

Rule: blocking, one connection, one request at a time; an error that a client would repeat after is repeated, for a
while. Messages: ListOffsets 2, Fetch 4, Produce 8, InitProducerId 0.
"""

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from crc32c import crc32c
from kio.index import load_response_schema

from protocol.errors import ErrorCode
from tests.support.records.kio_messages import KioEntity, kio_read
from tests.support.records.plain_records import Record, make_batch, read_batches
from tests.torture.history import Read, Value

LIST_OFFSETS, FETCH, PRODUCE, INIT_PRODUCER_ID = 2, 1, 0, 22
SECONDS_MAX = 60.0
FETCH_BYTES = 4 << 20
LATEST, EARLIEST = -1, -2


class Identity(NamedTuple):
    """What an idempotent producer puts into a batch."""

    producer_id: int
    epoch: int
    sequence: int


class DirectReader:
    """One connection to one agent."""

    def __init__(self, connection: socket.socket, topic: str, partitions: int, seconds_max: float) -> None:
        self._connection = connection
        self._seconds_max = seconds_max
        self._topic = struct.pack(">h", len(topic)) + topic.encode()
        self._partitions = partitions

    def log_ends(self) -> list[int]:
        """The log end of every partition."""
        return [self._listed(partition, LATEST) for partition in range(self._partitions)]

    def read_all(self) -> list[Read]:
        """Every record from offset 0 to the log end as it is now."""
        reads: list[Read] = []
        for partition, end in enumerate(self.log_ends()):
            assert self._listed(partition, EARLIEST) == 0
            reads += self.read_between(partition, 0, end)
        return reads

    def log_end(self, partition: int) -> int:
        return self._listed(partition, LATEST)

    def produce(self, value: Value, *, timeout_ms: int, identity: Identity | None = None) -> tuple[ErrorCode, int]:
        """Produce one record, without a producer id where there is no identity; error and base offset as told."""
        text = f"{value}:{'.' * (value.counter * 37 % 400)}"
        batch = stamped(make_batch([Record(offset=0, timestamp=1, value=text.encode())]), identity)
        return self.produce_batch(value.partition, batch, timeout_ms=timeout_ms)

    def produce_batch(self, partition: int, batch: bytes, *, timeout_ms: int) -> tuple[ErrorCode, int]:
        """Produce a batch as it is."""
        head = struct.pack(">hhii", -1, -1, timeout_ms, 1) + self._topic + struct.pack(">i", 1)
        answer = self.ask(PRODUCE, 8, head + struct.pack(">ii", partition, len(batch)) + batch)
        (topic,) = answer.responses
        (told,) = topic.partition_responses
        return ErrorCode(int(told.error_code)), int(told.base_offset)

    def init_producer_id(self) -> tuple[ErrorCode, int]:
        """A new producer id, or the error."""
        answer = self.ask(INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 60_000))
        return ErrorCode(int(answer.error_code)), int(answer.producer_id)

    def fetch(
        self, positions: Mapping[int, int], *, wait_ms: int = 500, bytes_max: int = FETCH_BYTES
    ) -> dict[int, tuple[ErrorCode, bytes]]:
        """One Fetch of several partitions: error and record batches of each."""
        head = struct.pack(">iiiibi", -1, wait_ms, 1, bytes_max, 0, 1) + self._topic + struct.pack(">i", len(positions))
        rows = [struct.pack(">iqi", partition, offset, bytes_max) for partition, offset in positions.items()]
        (topic,) = self.ask(FETCH, 4, head + b"".join(rows)).responses
        found: dict[int, tuple[ErrorCode, bytes]] = {}
        for told in topic.partitions:
            found[int(told.partition_index)] = ErrorCode(int(told.error_code)), bytes(told.records or b"")
        return found

    def read_between(self, partition: int, offset: int, end: int) -> Iterator[Read]:
        """The records from `offset` to before `end`, which the log has reached."""
        deadline = time.monotonic() + self._seconds_max
        while offset < end:
            found = self._fetch(partition, offset)
            assert time.monotonic() < deadline, f"partition {partition} gives nothing at offset {offset} of {end}"
            if not found:
                continue
            batches = read_batches(found)
            for record in batches.records:
                if offset <= record.offset < end:
                    assert record.value is not None
                    yield Read(partition, record.offset, read_value(record.value))
            offset, deadline = batches.ranges[-1][1], time.monotonic() + self._seconds_max

    def _fetch(self, partition: int, offset: int) -> bytes:
        """The record batches at an offset; none where the agent has none now."""
        ((error_code, records),) = self.fetch({partition: offset}).values()
        assert error_code is not ErrorCode.offset_out_of_range, (
            f"partition {partition}: offset {offset} is out of range"
        )
        return records

    def _listed(self, partition: int, timestamp: int) -> int:
        deadline = time.monotonic() + self._seconds_max
        while True:
            head = struct.pack(">ibi", -1, 0, 1) + self._topic
            answer = self.ask(LIST_OFFSETS, 2, head + struct.pack(">iiq", 1, partition, timestamp))
            (topic,) = answer.topics
            (told,) = topic.partitions
            if not told.error_code:
                return int(told.offset)
            assert time.monotonic() < deadline, f"ListOffsets answers {told.error_code}"

    def ask(self, api_key: int, version: int, body: bytes) -> KioEntity:
        """What an agent answers to a request that is not flexible."""
        return kio_read(load_response_schema(api_key, version), self.ask_bytes(api_key, version, body))

    def ask_bytes(self, api_key: int, version: int, body: bytes) -> bytes:
        """The answer behind its correlation id; a flexible request's body begins with its header's tags."""
        head = struct.pack(">hhih", api_key, version, 1, -1)
        self._connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        return self._receive(int.from_bytes(self._receive(4), "big"))[4:]

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._connection.recv(min(count - len(data), 1 << 20))
            assert piece, "the agent closed the connection"
            data += piece
        return bytes(data)


@contextmanager
def direct_reader(
    address: str, topic: str, partitions: int, *, seconds_max: float = SECONDS_MAX
) -> Iterator[DirectReader]:
    """A reader of `topic` through the agent at HOST:PORT, which waits for an answer for `seconds_max` at most."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=seconds_max) as connection:
        yield DirectReader(connection, topic, partitions, seconds_max)


def stamped(batch: bytes, identity: Identity | None, *, attributes: int = 0) -> bytes:
    """A batch with a producer's identity, and its CRC made right. Layout: KIP-98."""
    if identity is None:
        return batch
    changed = bytearray(batch)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">qhi", changed, 43, *identity)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def read_value(value: bytes) -> Value:
    """What a producer's record holds, its padding checked: as long as the counter says."""
    producer, partition, counter, padding = value.decode().split(":")
    assert padding == "." * (int(counter) * 37 % 400), f"a damaged value: {value!r}"
    return Value(producer, int(partition), int(counter))
