"""The columns of a read, and the conversion of a data file's columns to those of Spark's Kafka source. Pure.

Nothing here knows Spark, or the source of the rows.
"""
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.rows import schema
from protocol.limits import SPARK_GATHERED_BYTES

Arrow: TypeAlias = Any
"""A pyarrow object."""
TIME_US_FIRST: Final = -(1 << 63)
TIME_US_LAST: Final = (1 << 63) - 1
"""The bounds of the column `timestamp`, in microseconds since 1970."""
_PARQUET_COLUMNS: Final = {
    "key": schema.KEY,
    "value": schema.VALUE,
    "partition": schema.PARTITION,
    "offset": schema.OFFSET,
    "timestamp": schema.TIMESTAMP,
    "timestampType": schema.TIMESTAMP_TYPE,
    "headers": schema.HEADERS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns to read, by the names of the Kafka source, and the rows."""

    columns: tuple[str, ...]
    since_us: int = TIME_US_FIRST
    """The earliest timestamp of the rows, in microseconds since 1970; all rows by default."""

    @property
    def file_columns(self) -> tuple[str, ...]:
        """The columns of a data file that are needed."""
        return tuple(_PARQUET_COLUMNS[name] for name in self.columns if name in _PARQUET_COLUMNS)


def to_spark(batch: Arrow, topics: Sequence[tuple[str, int]], columns: Sequence[str]) -> Arrow:
    """A batch of a file's columns, with the names and the nulls of the Kafka source.

    `topics`: the topic of each run of rows, with the count of its rows.
    """
    arrays: list[Arrow] = []
    for name in columns:
        if name == "topic":
            arrays.append(_topic_column(topics))
            continue
        column = batch.column(_PARQUET_COLUMNS[name])
        if name == "headers":
            # Differs from the table, where a record without headers has an empty list.
            column = pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, column.type), column)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def joined(batches: Iterable[Arrow]) -> Iterator[Arrow]:
    """The same rows in fewer batches: small ones are joined to about `SPARK_GATHERED_BYTES`.

    Each batch costs Spark as much as many rows do, and the tail has very many small chunks.
    """
    pending: list[Arrow] = []
    pending_bytes = 0
    for batch in batches:
        if pending and (pending_bytes + batch.nbytes > SPARK_GATHERED_BYTES or batch.schema != pending[0].schema):
            yield _as_one(pending)
            pending, pending_bytes = [], 0
        pending.append(batch)
        pending_bytes += batch.nbytes
    if pending:
        yield _as_one(pending)


def _as_one(batches: Sequence[Arrow]) -> Arrow:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _topic_column(topics: Sequence[tuple[str, int]]) -> Arrow:
    runs = [pa.repeat(pa.scalar(name, pa.string()), count) for name, count in topics]
    return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)
