"""Files of one topic whose values' bytes are left out where typed columns give them back, for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq

from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.reader import decode_row_group, parse_footer
from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.footer import Footer
from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.columns import TypedColumns
from iceberg_export.typed.file_columns import FileColumns, plan_columns
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.scan import Sides, writers_of
from iceberg_export.typed.shapes import SchemaUnusable
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from tests.support.lake.typed_records import avro_reader
from tests.support.records.plain_records import Record, make_batch


@dataclass(frozen=True)
class LeftOutFile:
    """A file, and what was asked of its columns."""

    file: ArchiveFile
    planned: FileColumns

    @cached_property
    def data(self) -> bytes:
        return b"".join(self.file.parts)

    @cached_property
    def footer(self) -> Footer:
        return parse_footer(self.data)

    def row_group(self, number: int = 0) -> RecordRows:
        """As the agents read it, of its own bytes alone."""
        place = self.footer.row_groups[number]
        return decode_row_group(self.footer, number, self.data[place.byte_first : place.byte_first + place.byte_count])

    def values(self) -> list[bytes | None]:
        """What Kafka's consumers get."""
        groups = [self.row_group(number) for number in range(len(self.footer.row_groups))]
        return [rows.value.row(row) for rows in groups for row in range(len(rows))]

    def table(self) -> Any:  # noqa: ANN401
        """As it is stored."""
        return pq.read_table(BytesIO(self.data))

    def kept(self) -> list[bytes | None]:
        """The bytes that the file has of values."""
        kept: list[bytes | None] = self.table()["kept_value"].to_pylist()
        return kept

    def schema_ids(self) -> list[int | None]:
        ids: list[int | None] = self.table()["schema_id"].to_pylist()
        return ids


def source_chunk(values: Sequence[bytes | None], first: int = 0) -> SourceChunk:
    records = [Record(offset=first + row, timestamp=1_000, value=value) for row, value in enumerate(values)]
    return SourceChunk(
        partition=PartitionIndex(0),
        offset_first=Offset(first),
        offset_end=Offset(first + len(values)),
        append_time_ms=NO_TIMESTAMP,
        records=make_batch(records),
    )


def planned_for(
    chunk: SourceChunk,
    schemas: Mapping[int, object],
    *,
    before: TypedColumns | None = None,
    leaves_out: bool = True,
) -> FileColumns:
    """`schemas`: of Avro, by their ids."""
    readers = {schema_id: avro_reader(schema) for schema_id, schema in schemas.items()}

    def reader_of(writer: WriterSchema) -> AvroReader:
        if writer.schema_id not in readers:
            raise SchemaUnusable("it is not registered")
        return readers[writer.schema_id]

    seen = writers_of(decode_chunk(chunk), Sides.VALUE, frozenset())
    return plan_columns(before, seen, Sides.VALUE, reader_of, frozenset(), leaves_out=leaves_out)


def made_file(
    values: Sequence[bytes | None],
    schemas: Mapping[int, object],
    *,
    before: TypedColumns | None = None,
    leaves_out: bool = True,
) -> LeftOutFile:
    """A file of these values, one at least."""
    chunk = source_chunk(values)
    planned = planned_for(chunk, schemas, before=before, leaves_out=leaves_out)
    with ArchiveWriter(topic_id=TopicId(bytes(16)), typed=planned) as writer:
        writer.add(chunk)
        return LeftOutFile(writer.finish(), planned)
