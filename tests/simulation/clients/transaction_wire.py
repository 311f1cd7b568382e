"""The messages of transactional producers and of readers that want decided records, of V1 clients and of V2's.

Rule: as `tests.simulation.clients.wire`. A V1 client speaks versions without tagged fields, but for InitProducerId,
which names an epoch only in later ones; a V2 client speaks the first versions that know KIP-890.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from protocol.records.batch import HEADER_BYTES, BatchHeader, walk_batches
from tests.simulation.clients.group_wire import NO_TAGS, NULL_TEXT, CompactReader, Identity, by_topic, compact, varint
from tests.simulation.clients.wire import Place, Produced, Reader, read_produced, text
from tests.support.records.plain_records import Record, make_batch, read_batches

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, INIT_PRODUCER_ID = 0, 1, 2, 9, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
PRODUCE_VERSIONS, END_TXN_VERSIONS, TXN_OFFSET_COMMIT_VERSIONS = {1: 7, 2: 12}, {1: 2, 2: 5}, {1: 2, 2: 5}
"""By the version of transactions that a client speaks."""
TXN_OFFSET_COMMIT_BY_MEMBERS = {1: 3, 2: 5}
"""The same for members of groups, who say which one they are (KIP-447)."""
TXN_OFFSET_COMMIT_COMPACT = 3
"""From this version on."""
NOBODY = Identity(group_id="")
INIT_PRODUCER_ID_VERSIONS = {1: 4, 2: 5}
ADD_PARTITIONS_VERSION, ADD_OFFSETS_VERSION = 2, 2
FETCH_VERSION, LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION = 5, 2, 7
TRANSACTION = 1
CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
TRANSACTIONAL = 0x10
CRC, PRODUCER = struct.Struct(">I"), struct.Struct(">qhi")
MARKER_KEY_AT = 5
"""In the record of a marker, whose lengths and deltas are of one byte each."""
ABORT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes: as every transactional request begins."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    @property
    def numbers(self) -> bytes:
        return struct.pack(">qh", self.producer_id, self.epoch)


def batch_of(values: Sequence[bytes], *, timestamp: int, producer: Producer | None, sequence: int) -> bytes:
    """One record batch; transactional where it has a producer."""
    records = [Record(offset=row, timestamp=timestamp, value=value) for row, value in enumerate(values)]
    batch = bytearray(make_batch(records))
    if producer is not None:
        PRODUCER.pack_into(batch, PRODUCER_AT, producer.producer_id, producer.epoch, sequence)
        batch[ATTRIBUTES_AT + 1] |= TRANSACTIONAL
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def find_coordinator(transactional_id: str) -> bytes:
    return text(transactional_id) + struct.pack(">b", TRANSACTION)


def init_producer_id(who: Producer, timeout_ms: int) -> bytes:
    return compact(who.transactional_id) + struct.pack(">i", timeout_ms) + who.numbers + NO_TAGS


def read_producer_id(data: bytes) -> tuple[int, int, int]:
    """Error, producer id and epoch."""
    _, error, producer_id, epoch = CompactReader(data).numbers("ihqh")
    return error, producer_id, epoch


def add_partitions(who: Producer, places: Iterable[Place]) -> bytes:
    topics = by_topic(places)
    out = text(who.transactional_id) + who.numbers + struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        out += text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def read_by_partition(data: bytes) -> dict[Place, int]:
    """An error for each partition: of AddPartitionsToTxn, and of V1's TxnOffsetCommit."""
    reader = Reader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    for _ in range(reader.number("i")):
        topic = reader.text()
        for _ in range(reader.number("i")):
            partition, error = reader.numbers("ih")
            found[topic, partition] = error
    return found


def add_offsets(who: Producer, group_id: str) -> bytes:
    return text(who.transactional_id) + who.numbers + text(group_id)


def read_error(data: bytes) -> int:
    """Of AddOffsetsToTxn and of V1's EndTxn."""
    return Reader(data).numbers("ih")[1]


def end(who: Producer, version: int, *, is_commit: bool) -> bytes:
    if version == 1:
        return text(who.transactional_id) + who.numbers + struct.pack(">b", is_commit)
    return compact(who.transactional_id) + who.numbers + struct.pack(">b", is_commit) + NO_TAGS


def read_ended(data: bytes, version: int) -> tuple[int, int, int]:
    """Error, and the producer id and epoch of the next transaction: -1 of V1."""
    if version == 1:
        return read_error(data), -1, -1
    return read_producer_id(data)


def commit_offsets(
    who: Producer, version: int, group_id: str, offsets: Mapping[Place, int], *, member: Identity = NOBODY
) -> bytes:
    """TxnOffsetCommit; `member`: for whom, from version 3 on."""
    topics = by_topic(offsets)
    if version < TXN_OFFSET_COMMIT_COMPACT:
        out = text(who.transactional_id) + text(group_id) + who.numbers + struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            out += text(topic) + struct.pack(">i", len(partitions))
            for partition in partitions:
                out += struct.pack(">iqi", partition, offsets[topic, partition], -1) + NULL_TEXT
        return out
    out = compact(who.transactional_id) + compact(group_id) + who.numbers
    out += struct.pack(">i", member.generation) + compact(member.member_id) + compact(member.instance_id)
    out += varint(len(topics) + 1)
    for topic, partitions in topics.items():
        out += compact(topic) + varint(len(partitions) + 1)
        for partition in partitions:
            out += struct.pack(">iqi", partition, offsets[topic, partition], -1) + compact(None) + NO_TAGS
        out += NO_TAGS
    return out + NO_TAGS


def read_offsets_committed(data: bytes, version: int) -> dict[Place, int]:
    """An error for each partition, of this version of TxnOffsetCommit."""
    if version < TXN_OFFSET_COMMIT_COMPACT:
        return read_by_partition(data)
    reader = CompactReader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            partition, error = reader.numbers("ih")
            reader.tags()
            found[topic, partition] = error
        reader.tags()
    return found


def fetch_offsets(group_id: str, places: Iterable[Place]) -> bytes:
    """OffsetFetch with RequireStable (KIP-447)."""
    topics = by_topic(places)
    out = compact(group_id) + varint(len(topics) + 1)
    for topic, partitions in topics.items():
        out += compact(topic) + varint(len(partitions) + 1)
        out += struct.pack(f">{len(partitions)}i", *partitions) + NO_TAGS
    return out + struct.pack(">b", 1) + NO_TAGS


def read_offsets_fetched(data: bytes) -> tuple[int, dict[Place, int]]:
    """The first error, and an offset for each partition; -1 where none is committed."""
    reader = CompactReader(data)
    reader.number("i")
    found: dict[Place, int] = {}
    errors: list[int] = []
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            partition, offset, _ = reader.numbers("iqi")
            reader.text()
            errors.append(reader.number("h"))
            reader.tags()
            found[topic, partition] = offset
        reader.tags()
    errors.append(reader.number("h"))
    return next((error for error in errors if error), 0), found


def produce(
    transactional_id: str | None, batches: Sequence[tuple[Place, bytes]], timeout_ms: int, version: int
) -> bytes:
    """One batch for each partition."""
    if version == 1:
        out = NULL_TEXT if transactional_id is None else text(transactional_id)
        out += struct.pack(">hii", -1, timeout_ms, len(batches))
        for (topic, partition), batch in batches:
            out += text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
        return out
    out = compact(transactional_id) + struct.pack(">hi", -1, timeout_ms) + varint(len(batches) + 1)
    for (topic, partition), batch in batches:
        out += compact(topic) + varint(2) + struct.pack(">i", partition) + varint(len(batch) + 1) + batch
        out += NO_TAGS + NO_TAGS
    return out + NO_TAGS


def read_answer_to_produce(data: bytes, version: int) -> dict[Place, Produced]:
    if version == 1:
        return read_produced(data)
    reader = CompactReader(data)
    found: dict[Place, Produced] = {}
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            partition, error, base_offset, append_time_ms, _ = reader.numbers("ihqqq")
            for _ in range(reader.count()):
                reader.number("i")
                reader.text()
                reader.tags()
            reader.text()
            reader.tags()
            found[topic, partition] = Produced(error=error, base_offset=base_offset, append_time_ms=append_time_ms)
        reader.tags()
    return found


# Reading.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition of a Fetch was told."""

    error: int
    last_stable: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction."""
    records: bytes


def fetch(wanted: Sequence[tuple[Place, int]], *, max_wait_ms: int, bytes_max: int, is_committed: bool) -> bytes:
    """From an offset of each partition."""
    out = struct.pack(">iiiibi", -1, max_wait_ms, 1, bytes_max, is_committed, len(wanted))
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
            partition, error, _, last_stable, _ = reader.numbers("ihqqq")
            aborted = tuple((reader.number("q"), reader.number("q")) for _ in range(max(reader.number("i"), 0)))
            records = reader.bytes(reader.number("i"))
            found[topic, partition] = Fetched(error=error, last_stable=last_stable, aborted=aborted, records=records)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What a reader makes of one partition's records."""

    records: list[tuple[int, bytes]]
    """Offset and value of what it keeps."""
    ranges: list[tuple[int, int]]
    """The offsets that each batch covers, half open."""


def decode(fetched: Fetched, *, is_committed: bool) -> Decoded:
    """As Kafka's consumer: it drops what a producer wrote from the first offset of each aborted transaction on, until
    it meets that producer's abort marker.

    Source: org.apache.kafka.clients.consumer.internals.CompletedFetch (Kafka 4.3).
    """
    waiting = sorted(fetched.aborted, key=lambda one: one[1]) if is_committed else []
    dropping: set[int] = set()
    decoded = Decoded(records=[], ranges=[])
    for header in walk_batches(fetched.records):
        last = header.base_offset + header.last_offset_delta
        decoded.ranges.append((header.base_offset, last + 1))
        while waiting and waiting[0][1] <= last:
            dropping.add(waiting.pop(0)[0])
        if header.is_control:
            if _is_abort(fetched.records, header):
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            found = read_batches(fetched.records[header.position : header.end])
            decoded.records.extend((record.offset, record.value or b"") for record in found.records)
    return decoded


def _is_abort(buffer: bytes, header: BatchHeader) -> bool:
    if header.producer_id < 0 or not header.record_count:
        return False
    _, kind = struct.unpack_from(">hh", buffer, header.position + HEADER_BYTES + MARKER_KEY_AT)
    return bool(kind == ABORT)


def list_last_stable(place: Place) -> bytes:
    """ListOffsets: the end of what a read_committed reader may have."""
    return struct.pack(">ibi", -1, 1, 1) + text(place[0]) + struct.pack(">iiq", 1, place[1], -1)


def read_listed(data: bytes) -> tuple[int, int]:
    """Error and offset."""
    reader = Reader(data)
    reader.numbers("ii")
    reader.text()
    _, _, error, _, offset = reader.numbers("iihqq")
    return error, offset
