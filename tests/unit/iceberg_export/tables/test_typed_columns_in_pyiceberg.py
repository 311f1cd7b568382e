"""PyIceberg reads typed columns of every type, those of files with older schemas too."""

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from storage.local_store import LocalStore
from tests.made_typed_tables import BOTH, FIRST, FIRST_VALUES, SECOND, SECOND_VALUES, TypedTable, without_nulls

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
