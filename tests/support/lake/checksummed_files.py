"""A small archive file with checksums."""

from coordinator.commands.commands import ArchivedChunk
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from tests.support.records.plain_records import Record, make_batch

KEY = "lake/t/data/1.parquet"
RECORDS = [Record(offset=n, timestamp=n, key=b"k%d" % (n % 3), value=b"value %d" % n) for n in range(60)]


def archived(key: str | None = KEY, records: list[Record] = RECORDS) -> tuple[bytes, list[ArchivedChunk]]:
    with ArchiveWriter(topic_id=TopicId(bytes(16)), row_group_bytes_target=400, key=key) as writer:
        writer.add(
            SourceChunk(
                partition=PartitionIndex(0),
                offset_first=Offset(0),
                offset_end=Offset(len(records)),
                append_time_ms=NO_TIMESTAMP,
                records=make_batch(records),
            )
        )
        file = writer.finish()
    return b"".join(file.parts), list(file.partitions[0][1])
