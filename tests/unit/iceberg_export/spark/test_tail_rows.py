"""The rows of the tail, out of the bucket alone."""

import pickle
from collections.abc import Iterator, Sequence

import pytest

from iceberg_export.spark import tail_rows as reader
from iceberg_export.spark.bucket import Bucket
from iceberg_export.tail.manifest import NO_KEY, TailChunk, TailChunks, TailPartition, TailTopic
from protocol.records.batch import check_crcs, encode_varint
from protocol.records.compression import Compression
from protocol.records.control_batches import empty_control_batch
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, PartitionIndex, ProducerId, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged, ObjectMissing
from tests.support.lake.tail_reading import tail_batches, tail_piece, tail_rows
from tests.support.records.plain_records import Record, make_batch
from txn.isolation import AbortedExtent

PARTITION = PartitionIndex(3)


class Filled:
    """A bucket and the chunks that are in it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.bucket = Bucket(self.store)
        self.chunks: list[TailChunk] = []

    def put(
        self, *batches: bytes, end: int, key: str = "", append_time_ms: int = NO_TIMESTAMP, checksum: int = 0
    ) -> None:
        """Adds a chunk that ends at `end`, in an object of its own that begins with something else."""
        first = self.chunks[-1].offset_end if self.chunks else Offset(10)
        records = b"".join(batches)
        key = key or f"intake/{len(self.chunks)}"
        self.bucket.run(self.store.put(key, [b"header", records]))
        self.chunks.append(
            TailChunk(
                offset_first=first,
                offset_end=Offset(end),
                object_key=key,
                byte_first=6,
                byte_count=len(records),
                append_time_ms=Milliseconds(append_time_ms),
                checksum=checksum,
            )
        )

    def marker(self) -> None:
        first = self.chunks[-1].offset_end
        self.chunks.append(
            TailChunk(
                offset_first=first,
                offset_end=Offset(first + 1),
                object_key=NO_KEY,
                byte_first=0,
                byte_count=0,
                append_time_ms=Milliseconds(NO_TIMESTAMP),
            )
        )

    def topic(self, *aborted: AbortedExtent) -> TailTopic:
        partition = TailPartition(
            log_start=Offset(0),
            archived_end=Offset(10),
            last_stable=self.chunks[-1].offset_end,
            chunks=TailChunks.of(self.chunks),
            aborted=aborted,
        )
        empty = TailPartition(log_start=Offset(0), archived_end=Offset(0), last_stable=Offset(0))
        partitions = (*[empty] * PARTITION, partition)
        return TailTopic(name="t", topic_id=TopicId(bytes(16)), metadata_key=NO_KEY, partitions=partitions)

    def read(self, topic: TailTopic, first: int, end: int) -> list[tuple[int, int, bytes | None]]:
        return tail_rows(self.bucket, pickle.loads(pickle.dumps(tail_piece(topic, first, end, PARTITION))))


@pytest.fixture
def filled() -> Iterator[Filled]:
    made = Filled()
    yield made
    made.bucket.close()


def batch(first: int, end: int, *, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(offset=offset, timestamp=1000 + offset, value=b"%d" % offset) for offset in range(first, end)]
    return make_batch(records, compression)


def rows(offsets: Sequence[int]) -> list[tuple[int, int, bytes]]:
    return [(offset, 1000 + offset, b"%d" % offset) for offset in offsets]


def test_every_range_of_offsets_gives_exactly_its_rows(filled: Filled) -> None:
    filled.put(batch(10, 13), batch(13, 14, compression=Compression.ZSTD), end=14)
    filled.put(batch(14, 20), end=20)
    for first in range(10, 20):
        for end in range(first, 21):
            assert filled.read(filled.topic(), first, end) == rows(range(first, end))


def test_what_the_broker_stamped_has_the_broker_s_time(filled: Filled) -> None:
    filled.put(batch(10, 12), end=12, append_time_ms=77)
    assert filled.read(filled.topic(), 10, 12) == [(10, 77, b"10"), (11, 77, b"11")]


def test_many_bytes_are_read_some_at_a_time(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(10, 16):
        filled.put(batch(first, first + 1), end=first + 1)
    monkeypatch.setattr(reader, "TAIL_READ_BYTES_MAX", filled.chunks[0].byte_count * 2)
    piece = tail_piece(filled.topic(), 10, 16, PARTITION)
    assert [len(rows) for rows in tail_batches(filled.bucket, piece)] == [2, 2, 2]


def test_an_object_that_is_gone_is_an_error_and_never_fewer_rows(filled: Filled) -> None:
    filled.put(batch(10, 20), end=20)
    filled.bucket.run(filled.store.delete(["intake/0"]))
    with pytest.raises(ObjectMissing, match="intake/0"):
        filled.read(filled.topic(), 10, 20)


def test_damaged_bytes_are_an_error(filled: Filled) -> None:
    filled.put(batch(10, 20), end=20)
    filled.put(batch(20, 22)[:-1] + encode_varint(9), end=22)
    filled.put(batch(22, 24), end=30)
    assert len(filled.read(filled.topic(), 10, 20)) == 10
    with pytest.raises(ObjectDamaged, match="intake/1, partition 3, offset 20"):
        filled.read(filled.topic(), 20, 22)
    with pytest.raises(ObjectDamaged, match="the index says 30"):
        filled.read(filled.topic(), 22, 30)


def test_another_objects_batches_are_an_error(filled: Filled) -> None:
    """Safety rule S20: they are whole, and as many."""
    both = (batch(10, 13), batch(13, 14))
    filled.put(*both, end=14, checksum=check_crcs(b"".join(both)))
    assert filled.read(filled.topic(), 10, 14) == rows(range(10, 14))
    filled.bucket.run(filled.store.put("intake/0", [b"header", both[0], batch(14, 15)]))
    with pytest.raises(ObjectDamaged, match=r"intake/0, partition 3, offset 10: partition 3: .* have the checksum"):
        filled.read(filled.topic(), 10, 11)


def test_markers_are_not_read_and_nothing_to_read_is_nothing(filled: Filled) -> None:
    filled.put(batch(10, 12), end=12)
    filled.marker()
    topic = filled.topic(AbortedExtent(ProducerId(7), Offset(5), Offset(12)))
    assert filled.read(topic, 12, 13) == []
    assert filled.read(topic, 11, 13) == rows([11])
    assert filled.read(topic, 13, 13) == []


def test_a_chunk_without_rows_gives_none(filled: Filled) -> None:
    filled.put(empty_control_batch(10, 14), end=14)
    filled.put(batch(14, 15), end=15)
    assert filled.read(filled.topic(), 10, 14) == []
    assert filled.read(filled.topic(), 10, 15) == rows([14])
