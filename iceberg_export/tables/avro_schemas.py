"""The Avro schemas of manifests and manifest lists, with Iceberg's field ids.

The names of records and list elements are those of Iceberg's Java library, because some readers depend on them.
Specification: Iceberg's table specification, version 2, "Manifests", "Manifest Lists" and "Appendix A: Avro".
"""

from typing import Final

from fastavro import parse_schema
from fastavro.types import Schema

_Type = str | dict[str, object]


def _required(name: str, kind: _Type, field_id: int) -> dict[str, object]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: _Type, field_id: int) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _record(name: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _map(value: str, key_id: int, value_id: int) -> dict[str, object]:
    """A map whose keys are not strings: Avro has only an array of pairs for it."""
    pair = _record(f"k{key_id}_v{value_id}", _required("key", "int", key_id), _required("value", value, value_id))
    return {"type": "array", "logicalType": "map", "items": pair}


def _list(items: _Type, element_id: int) -> dict[str, object]:
    return {"type": "array", "items": items, "element-id": element_id}


_DATA_FILE = _record(
    "r2",
    _required("content", "int", 134),
    _required("file_path", "string", 100),
    _required("file_format", "string", 101),
    _required("partition", _record("r102"), 102),
    _required("record_count", "long", 103),
    _required("file_size_in_bytes", "long", 104),
    _optional("value_counts", _map("long", 119, 120), 109),
    _optional("null_value_counts", _map("long", 121, 122), 110),
    _optional("nan_value_counts", _map("long", 138, 139), 137),
    _optional("lower_bounds", _map("bytes", 126, 127), 125),
    _optional("upper_bounds", _map("bytes", 129, 130), 128),
    _optional("split_offsets", _list("long", 133), 132),
    _optional("sort_order_id", "int", 140),
)
_ENTRY = _record(
    "manifest_entry",
    _required("status", "int", 0),
    _optional("snapshot_id", "long", 1),
    _optional("sequence_number", "long", 3),
    _optional("file_sequence_number", "long", 4),
    _required("data_file", _DATA_FILE, 2),
)
_PARTITION_SUMMARY = _record(
    "r508",
    _required("contains_null", "boolean", 509),
    _optional("contains_nan", "boolean", 518),
    _optional("lower_bound", "bytes", 510),
    _optional("upper_bound", "bytes", 511),
)
_MANIFEST_FILE = _record(
    "manifest_file",
    _required("manifest_path", "string", 500),
    _required("manifest_length", "long", 501),
    _required("partition_spec_id", "int", 502),
    _required("content", "int", 517),
    _required("sequence_number", "long", 515),
    _required("min_sequence_number", "long", 516),
    _required("added_snapshot_id", "long", 503),
    _required("added_files_count", "int", 504),
    _required("existing_files_count", "int", 505),
    _required("deleted_files_count", "int", 506),
    _required("added_rows_count", "long", 512),
    _required("existing_rows_count", "long", 513),
    _required("deleted_rows_count", "long", 514),
    _optional("partitions", _list(_PARTITION_SUMMARY, 508), 507),
)

ENTRY_SCHEMA: Final[Schema] = parse_schema(_ENTRY)
"""A file in a manifest."""
MANIFEST_FILE_SCHEMA: Final[Schema] = parse_schema(_MANIFEST_FILE)
"""A manifest in a manifest list."""
