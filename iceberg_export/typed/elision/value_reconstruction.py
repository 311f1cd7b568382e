"""Decodes all values of archived rows, with those whose bytes their file leaves out.

The file is enough: neither the registry nor an agent is needed. A left-out value that cannot be decoded raises, and
never becomes null. CPU work.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.rows.gather import gather
from iceberg_export.typed.elision.flat_avro_writer import Arrow, Bytes, PlanUnusable, parts_of, write_values
from iceberg_export.typed.value_plans import ValuePlans

_INT32_MAX = 2**31 - 1


def restored_values(
    plans: ValuePlans, kept_values: BinaryColumn, schema_ids: Arrow, arrays: Mapping[str, Arrow]
) -> BinaryColumn:
    """All values of a row group. Raises `FileUnreadable`.

    `kept_values`: the values whose bytes the file has. `schema_ids`: the schema of each left-out value, null elsewhere.
    `arrays`: the typed columns of the plans, by name.
    """
    count = len(kept_values)
    if schema_ids.type != pa.int32() or len(schema_ids) != count:
        raise FileUnreadable(f"the ids of left-out values are {len(schema_ids)} {schema_ids.type} for {count} rows")
    # Damaged columns must raise: a wrong null would be served as a tombstone (safety rule S20).
    is_left_out = schema_ids.is_valid().to_numpy(zero_copy_only=False)
    if not is_left_out.any():
        return kept_values
    is_null = np.zeros(count, dtype=np.bool_) if kept_values.is_null is None else kept_values.is_null
    if bool((is_left_out & ~is_null).any()):
        raise FileUnreadable("a value is left out, but the file has its bytes")
    ids = schema_ids.fill_null(0).to_numpy()
    by_id = {plan.schema_id: plan for plan in plans.schemas}
    pieces: list[Bytes] = [kept_values.data]
    end = len(kept_values.data)
    first = kept_values.ends[:-1].astype(np.int64)
    length = np.diff(kept_values.ends).astype(np.int64)
    for schema_id in np.unique(ids[is_left_out]).tolist():
        plan = by_id.get(schema_id)
        if plan is None:
            raise FileUnreadable(
                f"values of schema {schema_id} are left out, but the footer does not say how to decode them"
            )
        for rows in parts_of(plan, np.flatnonzero(is_left_out & (ids == schema_id))):
            try:
                written = write_values(plan, arrays, rows)
            except PlanUnusable as error:
                raise FileUnreadable(f"left-out values cannot be given back: {error}") from error
            if bool(written.bad.any()):
                raise FileUnreadable(
                    f"{np.count_nonzero(written.bad)} left-out values of schema {schema_id} cannot be given back: "
                    "their columns have values that the schema cannot encode"
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
