"""What a manifest says of how many values, nulls and NaNs a file has in each column."""

from typing import Any

import pytest

from iceberg_export.rows.schema import FieldId
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts, decode, encode
from iceberg_export.tables.data_file import DataFile
from tests.support.lake.table_fixtures import MadeTable, data_file
from tests.support.lake.typed_records import record
from tests.support.lake.typed_table_fixtures import TypedTable

COUNTS = ColumnCounts.of([ColumnCount(7, 3, 0), ColumnCount(1, 3, 2, 1)])


def test_counts_are_by_field_id_and_come_back_from_a_footer() -> None:
    assert list(COUNTS) == [ColumnCount(1, 3, 2, 1), ColumnCount(7, 3, 0, NOT_COUNTED)]
    assert encode(COUNTS) == "[[1,3,2,1],[7,3,0,-1]]"
    assert decode(encode(COUNTS)) == COUNTS
    assert (COUNTS.nulls_of(1), COUNTS.nulls_of(2)) == (2, None)


@pytest.mark.parametrize(
    "text",
    [
        "[[1,3,4,-1]]",
        "[[1,3,-1,-1]]",
        "[[1,3,2,2]]",
        "[[1,3,2,-2]]",
        "[[1,3,2,0],[1,3,2,0]]",
        "[[1,3,true,0]]",
        "[[1,3]]",
        "[[1,3,2,0,0]]",
        "[1]",
        "7",
        "[[99999999999,3,2,0]]",
        "{",
        "[" * 100_000,
    ],
)
def test_what_cannot_be_a_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


async def test_files_from_before_keep_the_counts_that_they_had() -> None:
    made = MadeTable()
    old = DataFile(
        key=data_file(1).key,
        object_bytes=10,
        record_count=10,
        bounds=None,
        counts=ColumnCounts.of([ColumnCount(FieldId.KEY, 10, 3)]),
        split_offsets=(),
    )
    await made.commit(old)
    (found,) = await made.reader.live_files(await made.reader.metadata(made.metadata_key))
    assert found.file == old


def nulls_by_name(file: DataFile, made: TypedTable) -> dict[str, tuple[int, int]]:
    assert made.columns is not None
    counts = {each.field_id: (each.values, each.nulls) for each in file.counts}
    return {each.name: counts[each.field_id] for each in made.columns.columns if each.field_id in counts}


async def live(made: TypedTable) -> list[DataFile]:
    reader = made.reader
    return [each.file for each in await reader.live_files(await reader.metadata(made.metadata_key))]


async def test_columns_that_came_after_a_file_are_null_in_all_its_rows() -> None:
    made = TypedTable()
    await made.add(record("R", ("a", "long")), {"a": 1})
    inner: Any = {"type": "array", "items": record("S", ("x", "float"))}
    wider = record("R", ("a", "long"), ("l", inner), ("m", {"type": "map", "values": "double"}), ("d", "double"))
    await made.add(wider, {"a": 1, "l": [{"x": 0.5}, {"x": float("nan")}], "m": {"k": 1.0}, "d": float("nan")})
    first, second = sorted(await live(made), key=lambda file: file.key)
    assert nulls_by_name(first, made) == {"value_a": (1, 0), "value_l": (1, 1), "value_m": (1, 1), "value_d": (1, 1)}
    assert nulls_by_name(second, made) == dict.fromkeys(("value_a", "value_l", "value_m", "value_d"), (1, 0))
    ids = [{each.field_id for each in file.counts} for file in (first, second)]
    assert ids[0] == ids[1]
    nans = {each.nans for each in second.counts if each.nans != NOT_COUNTED}
    assert nans == {0, 1}
    assert {each.values for each in first.counts} == {0, 1}


async def test_a_field_inside_a_struct_that_came_later_is_null_where_the_struct_is() -> None:
    made = TypedTable()
    await made.add(record("R", ("s", record("S", ("x", "int")))), {"s": {"x": 1}})
    await made.add(record("R", ("s", record("S", ("x", "int"), ("y", "float")))), {"s": {"x": 1, "y": 1.0}})
    first, second = sorted(await live(made), key=lambda file: file.key)
    added = {each.field_id for each in second.counts} - {FieldId(number) for number in FieldId}
    missing = [each for each in first.counts if each.nulls == each.values == 1 and each.field_id in added]
    assert [(each.nans) for each in missing] == [NOT_COUNTED, 0]  # `error`, and `y`
