"""A table's metadata: the JSON with its schemas, properties and snapshots.

The structs have exactly the fields that Penstock writes. An unknown field is an error and not ignored: Penstock is the
only writer, so a newer version or another program wrote it, and a commit would lose it.

Specification: Iceberg's table specification, version 2, "Table Metadata Fields".
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal
from uuid import UUID

import msgspec
from crc32c import crc32c
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from iceberg_export.rows import schema
from iceberg_export.rows.schema import FieldId
from protocol.decoding import JsonDecoder, Undecodable, decode_json
from protocol.types import TopicId
from storage.object_store import StoreError
from storage.refs import METADATA_SUFFIX, topic_folder

FORMAT_VERSION = 2
SCHEMA_ID = 0
SPEC_ID = 0
SORT_ORDER_ID = 1
LAST_PARTITION_FIELD_ID = 999
"""The last assigned id of a partition field. Ids begin at 1000, and no table has partition fields."""
MAIN = "main"


class TableUnreadable(StoreError):
    """An object of a table's metadata is not as Penstock writes it.

    It is damaged, another program changed it, or a newer Penstock wrote it. No commit may follow it: an operator has to
    act.
    """


class SnapshotRef(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """A reference to a snapshot: `main`, which names the current one, or a tag or branch of a client (`edits`)."""

    snapshot_id: int
    type: str
    max_ref_age_ms: int | UnsetType = UNSET
    """The age of its snapshot at which the reference is removed."""


class SnapshotLogEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The time at which a snapshot became the current one."""

    timestamp_ms: int
    snapshot_id: int


class Snapshot(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """The table after one commit. `manifest_list`: an absolute URI; `parent_snapshot_id`: may have expired."""

    snapshot_id: int
    parent_snapshot_id: int | UnsetType = UNSET
    sequence_number: int
    timestamp_ms: int
    summary: dict[str, str]
    manifest_list: str
    schema_id: int


class TableMetadata(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """The metadata of a table. `snapshots`: in the order of their commits; the last one is current."""

    format_version: int
    table_uuid: str
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schemas: tuple[Raw, ...]
    default_spec_id: int
    partition_specs: tuple[Raw, ...]
    last_partition_id: int
    default_sort_order_id: int
    sort_orders: tuple[Raw, ...]
    properties: dict[str, str]
    current_snapshot_id: int | UnsetType = UNSET
    refs: dict[str, SnapshotRef]
    snapshots: tuple[Snapshot, ...]
    snapshot_log: tuple[SnapshotLogEntry, ...]
    metadata_log: tuple[Raw, ...]

    def current(self) -> Snapshot | None:
        """The current snapshot; None before the first commit of files."""
        return self.snapshots[-1] if self.snapshots else None


def _field(field_id: FieldId, name: str, kind: object, *, is_required: bool = True) -> dict[str, object]:
    return {"id": int(field_id), "name": name, "required": is_required, "type": kind}


_HEADER = {
    "type": "struct",
    "fields": [
        _field(FieldId.HEADER_KEY, "key", "string"),
        _field(FieldId.HEADER_VALUE, "value", "binary", is_required=False),
    ],
}
_HEADERS = {
    "type": "list",
    "element-id": int(FieldId.HEADERS_ELEMENT),
    "element": _HEADER,
    "element-required": True,
}
RAW_FIELDS = (
    _field(FieldId.PARTITION, schema.PARTITION, "int"),
    _field(FieldId.OFFSET, schema.OFFSET, "long"),
    _field(FieldId.TIMESTAMP, schema.TIMESTAMP, "timestamptz"),
    _field(FieldId.TIMESTAMP_TYPE, schema.TIMESTAMP_TYPE, "int"),
    _field(FieldId.KEY, schema.KEY, "binary", is_required=False),
    _field(FieldId.VALUE, schema.VALUE, "binary", is_required=False),
    _field(FieldId.HEADERS, schema.HEADERS, _HEADERS),
)
"""The columns that every table has."""
SCHEMA_JSON = msgspec.json.encode({"type": "struct", "schema-id": SCHEMA_ID, "fields": RAW_FIELDS})
"""The schema of every table without typed columns: the same as `arrow_rows.arrow_schema`."""

_SORT_ORDER_JSON = msgspec.json.encode(
    {
        "order-id": SORT_ORDER_ID,
        "fields": [
            {"transform": "identity", "source-id": int(field_id), "direction": "asc", "null-order": "nulls-first"}
            for field_id in (FieldId.PARTITION, FieldId.OFFSET)
        ],
    }
)
_SPEC_JSON = msgspec.json.encode({"spec-id": SPEC_ID, "fields": []})

PROPERTIES: Mapping[str, str] = {
    "gc.enabled": "false",
    "read.split.adaptive-size.enabled": "false",
    "write.format.default": "parquet",
}
"""The properties of every table. Engines must not delete files, because the ledger releases them. Spark's adaptive
split size would make a task of every row group."""
OWN_PREFIX = "penstock."
"""The prefix of properties that only Penstock sets."""
TOPIC_PROPERTY = "penstock.topic"
TOPIC_ID_PROPERTY = "penstock.topic-id"
CHECKSUM_PROPERTY = "penstock.crc32c"
"""The property with the checksum, in the JSON alone, never in `TableMetadata`: `<name>:<checksum>`. The name is that of
the object in its folder, without its suffix. The checksum is the CRC-32C of all bytes, as eight hexadecimal digits that
count as zeros. Metadata from before checksums does not have it."""
_NO_CHECKSUM = b"0" * 8
# A quote inside a JSON string follows a backslash, so no string value matches.
_CHECKSUM = re.compile(rb'[{,]"' + re.escape(CHECKSUM_PROPERTY).encode() + rb'":"([^"]*)"')

_decoder = JsonDecoder(TableMetadata)


def table_location(root: str, name: str, topic_id: TopicId) -> str:
    """The URI of a topic's table below the bucket's `root`, without a trailing slash."""
    return f"{root}/{topic_folder(name, topic_id)[:-1]}"


def empty_metadata(*, name: str, topic_id: TopicId, location: str, created_ms: int) -> TableMetadata:
    """The metadata of a topic's table before its first commit; equal arguments give equal metadata."""
    return TableMetadata(
        format_version=FORMAT_VERSION,
        table_uuid=str(UUID(bytes=topic_id)),
        location=location,
        last_sequence_number=0,
        last_updated_ms=created_ms,
        last_column_id=max(FieldId),
        current_schema_id=SCHEMA_ID,
        schemas=(Raw(SCHEMA_JSON),),
        default_spec_id=SPEC_ID,
        partition_specs=(Raw(_SPEC_JSON),),
        last_partition_id=LAST_PARTITION_FIELD_ID,
        default_sort_order_id=SORT_ORDER_ID,
        sort_orders=(Raw(_SORT_ORDER_JSON),),
        properties={**PROPERTIES, TOPIC_PROPERTY: name, TOPIC_ID_PROPERTY: topic_id.hex()},
        refs={},
        snapshots=(),
        snapshot_log=(),
        metadata_log=(),
    )


def encode(metadata: TableMetadata, key: str | None = None) -> bytes:
    """The metadata as JSON. `key`: where it will be put, for the checksum; None: without a checksum."""
    if key is None:
        return msgspec.json.encode(metadata)
    checksum = f"{_name(key)}:{_NO_CHECKSUM.decode()}"
    data = msgspec.json.encode(replace(metadata, properties={**metadata.properties, CHECKSUM_PROPERTY: checksum}))
    match = _CHECKSUM.search(data)
    assert match is not None, "the property was set above"
    return _with_digits(data, match.end(1), b"%08x" % crc32c(data))


def decode(data: bytes, key: str | None = None) -> TableMetadata:
    """The metadata of its JSON. `key`: the object that it was read from; None: a copy. Raises `TableUnreadable`."""
    check_checksum(data, key)
    return _decoded(data)


def decode_copy(data: bytes, before: bytes | None) -> TableMetadata:
    """The metadata of a copy of an unknown object. Raises `TableUnreadable`.

    `before`: the copy of the previous version; None where it is gone, empty where there was none.
    """
    # A program from before checksums copies the property into the next version like any other. A checksum that both
    # versions have may be such a copy, so it is not compared.
    if before is not None and not _has_checksum_of(data, before):
        check_checksum(data, None)
    return _decoded(data)


def _has_checksum_of(data: bytes, other: bytes) -> bool:
    mine, others = _CHECKSUM.search(data), _CHECKSUM.search(other)
    return mine is not None and others is not None and mine[1] == others[1]


def _decoded(data: bytes) -> TableMetadata:
    try:
        metadata = _decoder.decode(data)
    except Undecodable as error:
        raise TableUnreadable(
            f"this version of Penstock cannot read the table metadata ({error}): restore the object, or run the "
            f"version that wrote it"
        ) from error
    if CHECKSUM_PROPERTY in metadata.properties:
        properties = {name: value for name, value in metadata.properties.items() if name != CHECKSUM_PROPERTY}
        metadata = replace(metadata, properties=properties)
    current = metadata.current()
    current_id = UNSET if current is None else current.snapshot_id
    if metadata.format_version != FORMAT_VERSION or metadata.current_snapshot_id != current_id:
        raise TableUnreadable(
            f"the table metadata has format version {metadata.format_version} and the current snapshot "
            f"{metadata.current_snapshot_id}; expected version {FORMAT_VERSION} and {current_id}, the last snapshot: "
            f"another program changed it, restore the object"
        )
    contradiction = _contradiction(metadata)
    if contradiction:
        raise TableUnreadable(
            f"the table metadata contradicts itself: {contradiction}; it is damaged, restore the object"
        )
    return metadata


def check_checksum(data: bytes, key: str | None) -> None:
    """Compare the checksum of metadata as JSON, where it has one. `key`: see `decode`. Raises `TableUnreadable`.

    While agents are upgraded, one from before checksums may commit. It copies the property as it is, so its metadata
    names the previous object. Such a checksum is not compared.
    """
    match = _CHECKSUM.search(data)
    if match is None:
        return
    name, _, digits = match[1].rpartition(b":")
    checksum = b"%08x" % crc32c(_with_digits(data, match.end(1), _NO_CHECKSUM)) if digits else b""
    if key is None or name == _name(key).encode():
        if digits != checksum:
            raise TableUnreadable(
                f"the checksum of the table metadata is {checksum.decode()}, its property says {digits!r}: it is "
                f"damaged, restore the object"
            )
    # A valid checksum with another name: an undamaged object was copied over this one.
    elif digits == checksum:
        raise TableUnreadable(f"this object is a copy of the table metadata {name!r}: restore the object")


def _name(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(METADATA_SUFFIX)


def _with_digits(data: bytes, end: int, digits: bytes) -> bytes:
    """The data with `digits` in the bytes before `end`."""
    return data[: end - len(digits)] + digits + data[end:]


def schema_json_of(metadata: TableMetadata, schema_id: int) -> bytes:
    """The JSON of the schema with that id, which exists (`decode` checks it)."""
    return next(bytes(text) for text in metadata.schemas if _numbered_decoder.decode(text).schema_id == schema_id)


class _Numbered(msgspec.Struct, frozen=True):
    schema_id: int = msgspec.field(name="schema-id")


class _SchemaField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    name: str
    required: bool
    type: object


class _Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    type: Literal["struct"]
    schema_id: int
    fields: tuple[_SchemaField, ...]


_numbered_decoder = JsonDecoder(_Numbered)
_schema_decoder = JsonDecoder(_Schema)
_RAW_FIELDS_READ = list(_schema_decoder.decode(SCHEMA_JSON).fields)
_SPECS = [decode_json(_SPEC_JSON)]
_SORT_ORDERS = [decode_json(_SORT_ORDER_JSON)]
_COUNTS = ("total-", "added-", "deleted-", "removed-")
"""The prefixes of numbers in a summary. Specification: "Optional Snapshot Summary Fields"."""


def _contradiction(metadata: TableMetadata) -> str:
    """The first contradiction in the metadata; "" where there is none (safety rule S20).

    Metadata from before checksums may have a damaged digit, which reads as another number. The next commit would fail
    on it, or copy it.
    """
    try:
        schema_ids = {_numbered_decoder.decode(schema).schema_id for schema in metadata.schemas}
        schemas = [_schema_decoder.decode(schema) for schema in metadata.schemas]
        specs = [decode_json(text) for text in metadata.partition_specs]
        orders = [decode_json(text) for text in metadata.sort_orders]
        for text in metadata.metadata_log:
            decode_json(text)
    except Undecodable as error:
        return f"a schema, partition spec or sort order cannot be read ({error})"
    if any(list(schema.fields[: len(_RAW_FIELDS_READ)]) != _RAW_FIELDS_READ for schema in schemas):
        return "a schema lacks a column that every table has"
    if specs != _SPECS or orders != _SORT_ORDERS:
        return "a partition spec or sort order is not as Penstock writes it"
    ids = [snapshot.snapshot_id for snapshot in metadata.snapshots]
    if len(set(ids)) < len(ids):
        return "two snapshots have the same id"
    numbers = [0, *(snapshot.sequence_number for snapshot in metadata.snapshots)]
    if any(number >= following for number, following in pairwise(numbers)) or (
        numbers[-1] > metadata.last_sequence_number
    ):
        return f"the sequence numbers {numbers[1:]} are not ascending up to {metadata.last_sequence_number}"
    if unknown := {ref.snapshot_id for ref in metadata.refs.values()} - set(ids):
        return f"references to snapshots that do not exist: {sorted(unknown)}"
    if unknown := {metadata.current_schema_id, *(each.schema_id for each in metadata.snapshots)} - schema_ids:
        return f"schemas that do not exist: {sorted(unknown)}"
    for snapshot in metadata.snapshots:
        for name, value in snapshot.summary.items():
            if name.startswith(_COUNTS) and not (value.isascii() and value.isdigit()):
                return f"snapshot {snapshot.snapshot_id} says {name}={value!r}"
    return ""
