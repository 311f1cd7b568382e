"""PyIceberg reads typed columns of every type, those of files with older schemas too."""

from pathlib import Path

import polars
import pytest
from pyiceberg.table import StaticTable

from storage.embedded.local_store import LocalStore
from tests.support.lake.typed_records import avro_bytes, framed, record
from tests.support.lake.typed_table_fixtures import (
    BOTH,
    FIRST,
    FIRST_VALUES,
    SECOND,
    SECOND_VALUES,
    TypedTable,
    without_nulls,
)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


async def test_values_are_what_was_written_whatever_became_of_their_schemas(tmp_path: Path) -> None:
    made = TypedTable(store=LocalStore(tmp_path, is_durable=False), root=f"file://{tmp_path}")
    await made.add(FIRST, FIRST_VALUES)
    await made.add(SECOND, SECOND_VALUES)
    await made.add(None, None)
    table = StaticTable.from_metadata(f"{made.root}/{made.metadata_key}")
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    assert [without_nulls(row) for row in rows] == BOTH
    assert len(list(table.scan(row_filter="value_int = -5").to_arrow())) > 0
    assert table.scan(row_filter="value_small > 200").to_arrow()["offset"].to_pylist() == [1]
    assert table.scan(row_filter="error is not null").to_arrow()["offset"].to_pylist() == [2]


async def test_null_or_not_is_answered_of_every_column(tmp_path: Path) -> None:
    made = TypedTable(store=LocalStore(tmp_path, is_durable=False), root=f"file://{tmp_path}")
    await made.add(FIRST, FIRST_VALUES)
    await made.add(SECOND, SECOND_VALUES)
    await made.add(None, None)
    table = StaticTable.from_metadata(f"{made.root}/{made.metadata_key}")
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    assert len(rows) == 3
    for name in (field.name for field in table.schema().fields):
        nulls = {row["offset"] for row in rows if row[name] is None}
        for row_filter, expected in ((f"{name} is null", nulls), (f"{name} is not null", {0, 1, 2} - nulls)):
            planned = table.scan(row_filter=row_filter).plan_files()
            assert len({task.file.file_path for task in planned}) == len(expected), row_filter


async def test_values_that_are_left_out_are_null_and_those_that_are_kept_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    made = TypedTable(store=LocalStore(tmp_path, is_durable=False), root=f"file://{tmp_path}")
    flat, nested = record("R", ("a", "long")), record("R", ("l", {"type": "array", "items": "int"}))
    await made.add(nested, {"l": [1]}, leaves_out=True)
    await made.add(flat, {"a": 5}, leaves_out=True)
    await made.add(flat, {"a": 6})
    kept = [framed(1, avro_bytes(nested, {"l": [1]})), None, framed(1, avro_bytes(flat, {"a": 6}))]
    location = f"{made.root}/{made.metadata_key}"
    table = StaticTable.from_metadata(location)
    rows = table.scan().to_arrow().sort_by("offset")
    assert rows["value"].to_pylist() == kept
    assert rows["value_a"].to_pylist() == [None, 5, 6]
    assert rows["schema_id"].to_pylist() == [None, 1, None]
    for row_filter, wanted in (
        ("value is null", [1]),
        ("value is not null", [0, 2]),
        ("schema_id = 1", [1]),
        ("value_a > 4", [1, 2]),
    ):
        found = table.scan(row_filter=row_filter, selected_fields=("offset",)).to_arrow()["offset"].to_pylist()
        assert sorted(found) == wanted, row_filter
    by_polars = polars.scan_iceberg(location).sort("offset").collect()
    assert by_polars["value"].to_list() == kept
    names = [each.name for each in table.schema().fields]
    assert names[-4:] == ["error", "schema_id", "value_l", "value_a"]
