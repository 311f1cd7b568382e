"""Manifests and manifest lists as Avro: there and back, with what Iceberg asks for in their headers."""

import io
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from iceberg_export.tables.manifests import (
    ManifestEntry,
    ManifestFile,
    Status,
    decode_manifest,
    decode_manifest_list,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
    key_of_uri,
)
from iceberg_export.tables.metadata import TableUnreadable
from tests.support.lake.table_fixtures import ROOT, data_file

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
COUNT = st.integers(0, (1 << 63) - 1)

BOUNDS = st.builds(
    RowBounds,
    partition_min=INT32,
    partition_max=INT32,
    offset_min=INT64,
    offset_max=INT64,
    timestamp_us_min=INT64,
    timestamp_us_max=INT64,
)
SMALL_COUNT = st.integers(0, 1 << 40)
COUNTED = st.tuples(SMALL_COUNT, SMALL_COUNT, st.none() | SMALL_COUNT)


def counts_of(drawn: dict[int, tuple[int, int, int | None]]) -> ColumnCounts:
    return ColumnCounts.of(
        ColumnCount(field_id, numbers + nulls, nulls, NOT_COUNTED if nans is None else min(nans, numbers))
        for field_id, (numbers, nulls, nans) in drawn.items()
    )


FILES = st.builds(
    DataFile,
    key=st.text("abc/.-", min_size=1),
    object_bytes=COUNT,
    record_count=st.integers(0, 1 << 40),
    bounds=st.none() | BOUNDS,
    counts=st.dictionaries(st.integers(1, 1 << 30), COUNTED, max_size=4).map(counts_of),
    split_offsets=st.lists(COUNT, max_size=3).map(tuple),
)
ENTRIES = st.builds(ManifestEntry, status=st.sampled_from(Status), snapshot_id=COUNT, sequence_number=COUNT, file=FILES)


def entry(number: int, status: Status = Status.ADDED) -> ManifestEntry:
    return ManifestEntry(status=status, snapshot_id=77, sequence_number=5, file=data_file(number))


def listed(data: bytes, entries: list[ManifestEntry]) -> ManifestFile:
    return describe_manifest("m", len(data), entries, snapshot_id=77, sequence_number=5)


@given(st.lists(ENTRIES, max_size=4))
def test_entries_come_back(drawn: list[ManifestEntry]) -> None:
    # What a manifest adds or deletes is its own snapshot's.
    entries = [e if e.status is Status.EXISTING else replace(e, snapshot_id=77) for e in drawn]
    data = encode_manifest(entries, key="m", root=ROOT)
    # Of an added file the number is not written: it is the one of the manifest.
    expected = [replace(e, sequence_number=5) if e.status is Status.ADDED else e for e in entries]
    assert decode_manifest(data, listed(data, entries), root=ROOT) == tuple(expected)


def test_a_manifests_header_says_what_iceberg_asks_for() -> None:
    header = fastavro.reader(io.BytesIO(encode_manifest([entry(1)], key="m", root=ROOT))).metadata
    assert set(header) - {"avro.schema", "avro.codec"} == {
        "penstock.crc32c",
        "schema",
        "schema-id",
        "partition-spec",
        "partition-spec-id",
        "format-version",
        "content",
    }
    assert (header["format-version"], header["content"], header["partition-spec"]) == ("2", "data", "[]")


def test_fields_keep_icebergs_ids() -> None:
    schema = fastavro.reader(io.BytesIO(encode_manifest([], key="m", root=ROOT))).writer_schema
    assert isinstance(schema, dict)
    assert {field["name"]: field["field-id"] for field in schema["fields"]} == {
        "status": 0,
        "snapshot_id": 1,
        "data_file": 2,
        "sequence_number": 3,
        "file_sequence_number": 4,
    }
    data_file_fields = schema["fields"][-1]["type"]["fields"]
    assert {field["name"]: field["field-id"] for field in data_file_fields}["lower_bounds"] == 125
    assert data_file_fields[11]["type"][1]["element-id"] == 133


def test_bounds_are_little_endian() -> None:
    (row,) = fastavro.reader(io.BytesIO(encode_manifest([entry(6)], key="m", root=ROOT)))
    assert isinstance(row, dict)
    lower = {pair["key"]: pair["value"] for pair in row["data_file"]["lower_bounds"]}
    assert lower == {
        1: b"\x02\x00\x00\x00",
        2: b"\x3c" + bytes(7),
        3: (-1_000).to_bytes(8, "little", signed=True),
    }


def test_a_manifest_is_described_by_what_is_in_it() -> None:
    entries = [entry(1), replace(entry(2, Status.EXISTING), sequence_number=3), entry(3, Status.DELETED)]
    assert describe_manifest("m", 9, entries, snapshot_id=77, sequence_number=5) == ManifestFile(
        key="m",
        object_bytes=9,
        sequence_number=5,
        min_sequence_number=3,
        added_snapshot_id=77,
        added_files=1,
        existing_files=1,
        deleted_files=1,
        added_rows=10,
        existing_rows=10,
        deleted_rows=10,
    )
    assert describe_manifest("m", 9, entries[2:], snapshot_id=77, sequence_number=5).min_sequence_number == 5


@pytest.mark.parametrize(("parent", "written"), [(None, "null"), (3, "3")])
def test_a_manifest_list_comes_back(parent: int | None, written: str) -> None:
    manifests = (listed(b"12", [entry(1)]), listed(b"123", [entry(2, Status.DELETED)]))
    data = encode_manifest_list(
        manifests, key="l", root=ROOT, snapshot_id=77, parent_snapshot_id=parent, sequence_number=5
    )
    assert decode_manifest_list(data, key="l", root=ROOT) == manifests
    header = fastavro.reader(io.BytesIO(data)).metadata
    assert (header["snapshot-id"], header["parent-snapshot-id"], header["sequence-number"]) == ("77", written, "5")


def test_damaged_bytes_are_refused() -> None:
    data = encode_manifest([entry(number) for number in range(50)], key="m", root=ROOT)
    row = listed(data, [entry(number) for number in range(50)])
    for damaged in (b"", b"Obj\x01", data[:100], data[:-30], data[:-200], data[:-60] + bytes(44) + data[-16:]):
        with pytest.raises(TableUnreadable, match="'m'"):
            decode_manifest(damaged, row, root=ROOT)


def test_a_manifest_that_is_not_the_one_listed_is_refused() -> None:
    data = encode_manifest([entry(1)], key="m", root=ROOT)
    with pytest.raises(TableUnreadable, match="lists 1 files, but the manifest list says 2"):
        decode_manifest(data, listed(data, [entry(1), entry(2)]), root=ROOT)


def test_avro_of_another_kind_is_refused() -> None:
    manifest = encode_manifest([entry(1)], key="m", root=ROOT)
    with pytest.raises(TableUnreadable, match="is not one that Penstock writes"):
        decode_manifest_list(manifest, key="m", root=ROOT)
    row = replace(listed(manifest, [entry(1)]), key="l")
    a_list = encode_manifest_list([row], key="l", root=ROOT, snapshot_id=1, parent_snapshot_id=None, sequence_number=1)
    with pytest.raises(TableUnreadable, match="is not one that Penstock writes"):
        decode_manifest(a_list, row, root=ROOT)


def test_objects_elsewhere_are_refused() -> None:
    assert key_of_uri("s3://b/k/l", "s3://b") == "k/l"
    with pytest.raises(TableUnreadable, match="not below 's3://b'"):
        key_of_uri("s3://bc/k", "s3://b")
