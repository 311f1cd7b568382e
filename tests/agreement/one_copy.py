"""What the bucket holds beside what consumers get: each record once, over archived files and tail.

Rule: neither ledger, index, tables nor the tail manifest are looked at. Archived files say their offsets; intake
objects do not, but their records say who they are, and the Kafka view says where those stand. Aborted records may wait
in the intake; archived they are not.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.records.batch import check_crc, walk_batches
from storage.chunk_format import check_chunk, check_header, describe_object
from tests.agreement.compare import Finding, Findings, View, compare, is_first, text_of
from tests.agreement.records import VIEW, Numbers, heads, identities, name_of
from tests.support.lake.bucket_listing import INTAKE, METADATA, PARQUET, ListedBucket
from tests.support.records.plain_records import read_batches

FILES, TAIL, BUCKET = "archived files", "tail", "bucket"


@dataclass(slots=True, kw_only=True)
class Copies:
    """What lies in a bucket."""

    archived: pa.Table
    """All rows of all data files, as a view."""
    tail: Numbers
    """The identities of all records in the intake, as often as they stand there."""
    foreign: list[str] = field(default_factory=list[str])
    """Keys of what is neither data nor the cluster's own metadata."""
    data_files: int = 0
    intake_objects: int = 0


def list_copies(bucket: ListedBucket) -> Copies:
    """Everything that the bucket holds. Raises where an object is damaged."""
    objects = bucket.objects()
    files, tail, foreign = [VIEW.empty_table()], list[bytes](), list[str]()
    intake_objects = 0
    for key in sorted(objects):
        if match := PARQUET.fullmatch(key):
            files.append(_rows(bucket.read(key, objects[key]), match["name"]))
        elif INTAKE.fullmatch(key):
            intake_objects += 1
            tail += _values(bucket.read(key, objects[key]))
        elif not METADATA.fullmatch(key):
            foreign.append(key)
    values = pa.chunked_array([pa.array(tail, pa.large_binary())])
    return Copies(
        archived=pa.concat_tables(files),
        tail=identities(heads(values)),
        foreign=foreign,
        data_files=len(files) - 1,
        intake_objects=intake_objects,
    )


def one_copy(copies: Copies, kafka: View) -> list[Finding]:
    """What is not exactly once in the bucket, beside what consumers get."""
    archived = View.of(FILES, copies.archived)
    ids = identities(heads(kafka.table["value"]))
    order = np.argsort(ids)
    tail = np.sort(copies.tail)
    is_once = is_first(tail)
    found = Findings(BUCKET)
    found.add("in the intake more than once", map(name_of, tail[~is_once]), int((~is_once).sum()))
    rows = np.searchsorted(ids[order], tail[is_once])
    is_shown = np.zeros(len(rows), dtype=bool)
    if len(ids):
        is_shown = ids[order[np.minimum(rows, len(ids) - 1)]] == tail[is_once]
    waiting = np.sort(kafka.places[order[rows[is_shown]]])
    both = np.intersect1d(waiting, archived.places)
    found.add("archived and in the intake too", map(text_of, both), len(both))
    found.add("neither data nor the cluster's own", iter(copies.foreign), len(copies.foreign))
    is_waiting = np.isin(kafka.places, waiting)
    expected = View(kafka.name, kafka.table.filter(pa.array(~is_waiting)), kafka.places[~is_waiting])
    is_both = np.isin(archived.places, both)
    alone = View(FILES, archived.table.filter(pa.array(~is_both)), archived.places[~is_both])
    return found.all + compare(expected, alone)


def _rows(file: bytes, topic: str) -> pa.Table:
    table = pq.read_table(pa.BufferReader(file))
    milliseconds = pa.array(table["timestamp"].cast(pa.int64()).to_numpy() // 1000)
    table = table.drop_columns("timestamp").append_column("timestamp", milliseconds)
    names = pa.array([topic]).take(pa.array(np.zeros(table.num_rows, dtype=np.int64)))
    return table.append_column("topic", names).select(VIEW.names).cast(VIEW)


def _values(payload: bytes) -> list[bytes]:
    """The values of all records in an intake object."""
    check_header(payload)
    found: list[bytes] = []
    for chunk in describe_object(payload, len(payload)).chunks:
        run = payload[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        check_chunk(run, chunk)
        for header in walk_batches(run):
            check_crc(run, header)
            for record in read_batches(run[header.position : header.end]).records:
                assert record.value is not None, "a record that no producer of this run has sent"
                found.append(record.value)
    return found
