"""What a verification finds in files that leave values out, where these cannot be given back."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.jobs.examine import FileTask, TableFacts, examine
from iceberg_export.rows.schema import PLANS_METADATA_KEY
from tests.support.lake.typed_records import avro_bytes, framed, record
from tests.support.lake.value_elision import LeftOutFile, made_file

ORDER = record("Order", ("id", "int"))
ROWS = 3


def left_out() -> LeftOutFile:
    made = made_file([framed(7, avro_bytes(ORDER, {"id": number})) for number in range(ROWS)], {7: ORDER})
    assert made.kept() == [None] * ROWS
    return made


def found_in(made: LeftOutFile, data: bytes) -> list[str]:
    task = FileTask(file=replace(made.file.data_file("k"), object_bytes=len(data)), index=None)
    return [finding.what for finding in examine(data, task, TableFacts(log_starts=(0,))).findings]


def test_values_that_are_left_out_as_they_should_be_are_no_finding() -> None:
    made = left_out()
    assert found_in(made, made.data) == []


def without_numbers(table: Any) -> Any:  # noqa: ANN401
    place = table.schema.get_field_index("value_id")
    return table.set_column(place, table.schema.field(place), pa.nulls(ROWS, pa.int32()))


def without_plans(table: Any) -> Any:  # noqa: ANN401
    told = {key: value for key, value in table.schema.metadata.items() if key != PLANS_METADATA_KEY.encode()}
    return table.replace_schema_metadata(told)


@pytest.mark.parametrize(
    ("damage", "told"),
    [(without_numbers, "3 left-out values of schema 7 cannot be given back"), (without_plans, "how to decode them")],
)
def test_values_that_cannot_be_given_back_are_found(damage: Callable[[Any], Any], told: str) -> None:
    made = left_out()
    sink = io.BytesIO()
    pq.write_table(damage(made.table()), sink)
    (what,) = found_in(made, sink.getvalue())
    assert told in what
