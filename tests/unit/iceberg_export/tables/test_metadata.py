"""The JSON of a table's metadata, from what is literally written to what is refused."""

import json
from typing import Any

import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_export.parquet.arrow_rows import arrow_schema
from iceberg_export.tables.metadata import TableUnreadable, decode, empty_metadata, encode, table_location
from tests.support.lake.table_fixtures import CREATED_MS, NAME, ROOT, TOPIC, MadeTable, data_file, setting


def empty() -> bytes:
    location = table_location(ROOT, NAME, TOPIC)
    return encode(empty_metadata(name=NAME, topic_id=TOPIC, location=location, created_ms=CREATED_MS))


def test_a_table_before_its_first_commit() -> None:
    written = json.loads(empty())
    schema = written.pop("schemas")[0]
    assert [(field["id"], field["name"], field["required"]) for field in schema["fields"]] == [
        (1, "partition", True),
        (2, "offset", True),
        (3, "timestamp", True),
        (4, "timestamp_type", True),
        (5, "key", False),
        (6, "value", False),
        (7, "headers", True),
    ]
    assert written == {
        "format-version": 2,
        "table-uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "location": "s3://bucket/some/lake/flights-000102030405060708090a0b0c0d0e0f",
        "last-sequence-number": 0,
        "last-updated-ms": CREATED_MS,
        "last-column-id": 10,
        "current-schema-id": 0,
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 1,
        "sort-orders": [
            {
                "order-id": 1,
                "fields": [
                    {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"},
                    {"transform": "identity", "source-id": 2, "direction": "asc", "null-order": "nulls-first"},
                ],
            }
        ],
        "properties": {
            "gc.enabled": "false",
            "read.split.adaptive-size.enabled": "false",
            "write.format.default": "parquet",
            "penstock.topic": "flights",
            "penstock.topic-id": "000102030405060708090a0b0c0d0e0f",
        },
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def test_the_schema_is_that_of_the_parquet_files() -> None:
    metadata = TableMetadataUtil.parse_raw(empty().decode())
    assert metadata.schema().as_struct() == pyarrow_to_schema(arrow_schema()).as_struct()


def test_empty_metadata_is_the_same_each_time() -> None:
    assert empty() == empty()


async def test_what_is_written_is_read_back_the_same() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    data = (await table.commit(data_file(2), offsets={0: (1, 2)}, edit=setting({"a": "b"}))).metadata_json
    assert encode(decode(data), table.metadata_key) == data
    written = json.loads(data)
    assert "parent-snapshot-id" not in written["snapshots"][0]
    assert written["snapshots"][1]["parent-snapshot-id"] == written["snapshots"][0]["snapshot-id"]
    assert written["refs"] == {"main": {"snapshot-id": written["current-snapshot-id"], "type": "branch"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"statistics": []}, "unknown field `statistics`"),
        ({"snapshots": [{"snapshot-id": 1}]}, "missing required field"),
        ({"format-version": 3}, "format version 3"),
        ({"current-snapshot-id": 7}, "the current snapshot 7"),
    ],
)
def test_what_another_program_wrote_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(TableUnreadable, match=words):
        decode(json.dumps(json.loads(empty()) | change).encode())


def test_damaged_json_is_refused() -> None:
    with pytest.raises(TableUnreadable, match="restore the object"):
        decode(empty()[:-1])
