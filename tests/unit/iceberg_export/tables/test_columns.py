"""Typed columns in a table's metadata."""

import json

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_export.tables.columns import ColumnsChange, ColumnsMovedOn, columns_of, newest
from iceberg_export.tables.commit import Change
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable, decode
from iceberg_export.typed.columns import NO_COLUMNS, TypedColumns
from iceberg_export.typed.union import merge_value
from tests.support.lake.table_fixtures import MadeTable, data_file, setting
from tests.support.lake.typed_records import avro_reader, record


def columns(*names: str, before: TypedColumns = NO_COLUMNS) -> TypedColumns:
    return merge_value(before, avro_reader(record("R", *((name, "int") for name in names))).shape)


async def committed(
    table: MadeTable,
    number: int,
    before: TypedColumns | None,
    after: TypedColumns,
    expires_before_ms: int | None = None,
) -> TableMetadata:
    prepared = await table.prepare(
        Change(
            added=(data_file(number),),
            columns=ColumnsChange(before=before, after=after),
            expires_before_ms=expires_before_ms,
        )
    )
    table.apply(prepared)
    assert decode(prepared.metadata_json) == prepared.metadata
    TableMetadataUtil.parse_raw(prepared.metadata_json.decode())
    return prepared.metadata


def schema_ids(metadata: TableMetadata) -> list[int]:
    return [json.loads(bytes(each))["schema-id"] for each in metadata.schemas]


async def test_the_schema_changes_with_the_commit_of_the_first_file_that_needs_it() -> None:
    table = MadeTable()
    await table.commit(data_file(0))
    one = columns("a")
    two = columns("b", before=one)
    metadata = await committed(table, 1, None, one)
    metadata = await committed(table, 2, one, one)
    metadata = await committed(table, 3, one, two)
    assert [each.schema_id for each in metadata.snapshots] == [0, 1, 1, 2]
    assert (metadata.current_schema_id, schema_ids(metadata)) == (2, [0, 1, 2])
    assert metadata.last_column_id == 101
    assert columns_of(metadata) == two
    manifests = await table.reader.manifests(metadata.snapshots[-1])
    assert manifests


async def test_schemas_that_no_snapshot_has_are_let_go() -> None:
    table = MadeTable()
    known, before = columns("a0"), None
    for number in range(3):
        metadata = await committed(table, number, before, known, expires_before_ms=table.now_ms * 2)
        before, known = known, columns(f"a{number + 1}", before=known)
    assert schema_ids(metadata) == [2, 3]


async def test_a_file_for_other_columns_is_no_part_of_the_table() -> None:
    table = MadeTable()
    one = columns("a")
    await committed(table, 0, None, one)
    for before in (None, columns("b"), NO_COLUMNS):
        with pytest.raises(ColumnsMovedOn, match="the typed columns of the table: version 2"):
            await committed(table, 1, before, columns("c", before=one))


async def test_a_file_that_was_made_beside_another_one_with_the_same_columns_is() -> None:
    table = MadeTable()
    one = columns("a")
    first = await committed(table, 0, None, one)
    second = await committed(table, 1, None, one)
    assert (columns_of(second), second.schemas) == (one, first.schemas)


async def test_columns_that_cannot_be_read_are_told() -> None:
    table = MadeTable()
    with pytest.raises(TableUnreadable, match=r"penstock\.typed-columns"):
        await table.commit(data_file(0), edit=setting({"penstock.typed-columns": "{}"}))


def test_the_newest_columns_hold_all_that_others_do() -> None:
    one = columns("a")
    two = columns("b", before=one)
    assert newest(one, two) == newest(two, one) == two
    assert newest(one, None) == newest(None, one) == one
    assert newest(None, None) is None
