"""The values of archived rows, those given back of typed columns whose bytes their file leaves out.

Rule: what a file says is enough; neither the registry nor an agent is asked. A value that cannot be given back raises,
and is never null. CPU work.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.rows.gather import gather
from iceberg_export.typed.flat_avro_writer import Arrow, Bytes, PlanUnusable, parts_of, write_values
from iceberg_export.typed.value_plans import ValuePlans

_INT32_MAX = 2**31 - 1


def restored_values(
    plans: ValuePlans, kept: BinaryColumn, schema_ids: Arrow, arrays: Mapping[str, Arrow]
) -> BinaryColumn:
    """All values of a row group. `kept`: those whose bytes are there; `schema_ids`: of the others, null elsewhere;
    `arrays`: the typed columns that the plans name. Raises `FileUnreadable`."""
    count = len(kept)
    if schema_ids.type != pa.int32() or len(schema_ids) != count:
        raise FileUnreadable(f"the ids of left-out values are {len(schema_ids)} {schema_ids.type} for {count} rows")
    is_left_out = schema_ids.is_valid().to_numpy(zero_copy_only=False)
    if not is_left_out.any():
        return kept
    is_null = np.zeros(count, dtype=np.bool_) if kept.is_null is None else kept.is_null
    if bool((is_left_out & ~is_null).any()):
        raise FileUnreadable("a value is left out and there too")
    ids = schema_ids.fill_null(0).to_numpy()
    by_id = {plan.schema_id: plan for plan in plans.schemas}
    pieces: list[Bytes] = [kept.data]
    end = len(kept.data)
    first = kept.ends[:-1].astype(np.int64)
    length = np.diff(kept.ends).astype(np.int64)
    for schema_id in np.unique(ids[is_left_out]).tolist():
        plan = by_id.get(schema_id)
        if plan is None:
            raise FileUnreadable(
                f"values of schema {schema_id} are left out, and the file does not say how they are made"
            )
        for rows in parts_of(plan, np.flatnonzero(is_left_out & (ids == schema_id))):
            try:
                written = write_values(plan, arrays, rows)
            except PlanUnusable as error:
                raise FileUnreadable(f"left-out values cannot be given back: {error}") from error
            if bool(written.bad.any()):
                raise FileUnreadable(
                    f"{np.count_nonzero(written.bad)} left-out values of schema {schema_id} cannot be given back: "
                    "their columns hold what it cannot write"
                )
            pieces.append(written.data)
            first[rows] = written.ends[:-1] + end
            length[rows] = np.diff(written.ends)
            end += len(written.data)
    is_null = is_null & ~is_left_out
    ends = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(length, out=ends[1:])
    if ends[-1] > _INT32_MAX:
        raise FileUnreadable(f"the values of one row group have {ends[-1]} bytes")
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    gather(np.concatenate(pieces), first, length.astype(np.int32), data, 0)
    return BinaryColumn(ends=ends.astype(np.int32), data=data, is_null=is_null if bool(is_null.any()) else None)
