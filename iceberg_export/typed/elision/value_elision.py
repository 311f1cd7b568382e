"""Selects the values whose bytes a file leaves out, because its typed columns reproduce them.

A value is left out only where encoding it from the file's own columns gives the same bytes. The file has the bytes of
every other value. CPU work.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.typed.columns import Column
from iceberg_export.typed.decode import ValueReader
from iceberg_export.typed.elision.flat_avro_writer import Arrow, PlanUnusable, parts_of, write_values
from iceberg_export.typed.elision.flat_avro_writer_kernel import compare_rows
from iceberg_export.typed.flat_avro import FlatAvro
from iceberg_export.typed.framing import WriterSchema, column_schema_ids
from iceberg_export.typed.shapes import Form, Scalar
from iceberg_export.typed.union import match_fields
from iceberg_export.typed.value_plans import FieldPlan, ReadOp, SchemaPlan, ValuePlans, plan_bytes
from protocol.limits import VALUE_PLANS_BYTES_MAX

KEPT = -1
"""Replaces a schema's id: the file has the value's bytes, or the value is null."""
_INT32_MAX = 2**31 - 1


def plan_values(columns: Sequence[Column], readers: Mapping[WriterSchema, ValueReader | str]) -> ValuePlans | None:
    """The plans of the schemas whose values the columns may reproduce, in the order of their ids; None without any.

    All plans together have at most `VALUE_PLANS_BYTES_MAX` in the footer.
    """
    plans: list[SchemaPlan] = []
    free_bytes = VALUE_PLANS_BYTES_MAX
    for writer in sorted(readers, key=lambda each: each.schema_id):
        reader = readers[writer]
        if isinstance(reader, str) or reader.flat is None or writer.schema_id > _INT32_MAX:
            continue
        plan = _plan(writer.schema_id, reader.flat, columns)
        free_bytes -= plan_bytes(plan)
        if free_bytes < 0:
            break
        plans.append(plan)
    return ValuePlans(schemas=tuple(plans)) if plans else None


def _plan(schema_id: int, flat: FlatAvro, columns: Sequence[Column]) -> SchemaPlan:
    fields: list[FieldPlan] = []
    indexes = match_fields(columns, flat.shape.fields)
    for place, (index, (op, null, size)) in enumerate(zip(indexes, flat.program.tolist(), strict=True)):
        assert index is not None, "the schema was merged into the columns before"
        shape = flat.shape.fields[place].shape
        fields.append(
            FieldPlan(
                column=columns[index].name,
                op=ReadOp(op),
                null=null,
                size=size if op == ReadOp.FIXED else 0,
                symbols=flat.symbols.get(place, ()),
                is_milliseconds=isinstance(shape, Scalar) and shape.form is Form.MILLISECONDS,
            )
        )
    return SchemaPlan(schema_id=schema_id, fields=tuple(fields))


def left_out_by(
    column: BinaryColumn, plans: ValuePlans, arrays: Mapping[str, Arrow], errors: Sequence[str | None]
) -> NDArray[np.int64]:
    """The id of the schema whose plan reproduces each value; `KEPT` where the file needs the bytes.

    `arrays`: the file's typed columns by name. `errors`: the error of each value; a value with an error is kept.
    """
    result = np.full(len(column), KEPT, dtype=np.int64)
    ids = column_schema_ids(column)
    if any(errors):
        ids[[index for index, error in enumerate(errors) if error]] = KEPT
    ends = column.ends.astype(np.int64)
    for plan in plans.schemas:
        for rows in parts_of(plan, np.flatnonzero(ids == plan.schema_id)):
            try:
                written = write_values(plan, arrays, rows)
            except PlanUnusable:  # pragma: no cover  # the plans were made for these columns
                break
            is_same = np.zeros(len(rows), dtype=np.bool_)
            compare_rows(written.data, written.ends, column.data, ends[rows], ends[rows + 1], is_same)
            result[rows[is_same & ~written.bad]] = plan.schema_id
    return result
