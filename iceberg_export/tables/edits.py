"""Edits of a table through a catalog: its properties, and tags and branches, whose snapshots do not expire. Pure.

An edit is applied as a whole or not at all, to metadata that meets its requirements. The catalog decides which
properties a client may change.

A tag or a branch names an existing snapshot. Nothing is written to a branch, so a branch retains that snapshot alone.
Only Penstock changes `main`.

Source: Iceberg's REST specification, `CommitTableRequest`; `UpdateRequirement`, `TableMetadata.Builder` and
`SnapshotRef` of Iceberg's Java library; Iceberg's table specification, "Snapshot References".
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from iceberg_export.tables.metadata import MAIN, OWN_PREFIX, SnapshotRef, TableMetadata
from iceberg_export.tables.snapshots import TAG
from protocol.decoding import JsonDecoder, Undecodable
from protocol.limits import (
    TABLE_PROPERTIES_BYTES_MAX,
    TABLE_PROPERTIES_MAX,
    TABLE_PROPERTY_NAME_CHARS_MAX,
    TABLE_REF_NAME_CHARS_MAX,
    TABLE_REFS_MAX,
)

ROWS_COME_FROM_TOPIC = (
    "rows come from the topic: produce to it with a Kafka client to add some, use DeleteRecords or the topic's "
    "retention to delete some, and a tag or VERSION AS OF for time travel; Penstock rewrites files itself"
)
"""The reason why no client may change `main`."""
NOT_A_COMMIT = "the body is not a commit of a table"


class RequirementFailed(Exception):
    """The table has changed since the client made the edit: it has to make the edit again. The message names the
    difference."""


class EditInvalid(Exception):
    """The edit is not possible for this table. The message says why, and what is possible."""


class _Requirement(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="type"):
    pass


class AssertCreate(_Requirement, frozen=True, kw_only=True, tag="assert-create"):
    """The table does not exist, which is never true of a topic's."""


class AssertTableUuid(_Requirement, frozen=True, kw_only=True, tag="assert-table-uuid"):
    """The table is still the same: its topic was not deleted and created again."""

    uuid: str


class AssertRefSnapshotId(_Requirement, frozen=True, kw_only=True, tag="assert-ref-snapshot-id"):
    """A tag or branch names that snapshot; with None or without an id, it does not exist."""

    ref: str
    snapshot_id: int | None = None


class AssertLastAssignedFieldId(_Requirement, frozen=True, kw_only=True, tag="assert-last-assigned-field-id"):
    """No column was added."""

    last_assigned_field_id: int


class AssertCurrentSchemaId(_Requirement, frozen=True, kw_only=True, tag="assert-current-schema-id"):
    """The schema has not changed."""

    current_schema_id: int


class AssertLastAssignedPartitionId(_Requirement, frozen=True, kw_only=True, tag="assert-last-assigned-partition-id"):
    """No partition field was added."""

    last_assigned_partition_id: int


class AssertDefaultSpecId(_Requirement, frozen=True, kw_only=True, tag="assert-default-spec-id"):
    """The partition spec has not changed."""

    default_spec_id: int


class AssertDefaultSortOrderId(_Requirement, frozen=True, kw_only=True, tag="assert-default-sort-order-id"):
    """The sort order has not changed."""

    default_sort_order_id: int


Requirement: TypeAlias = (
    AssertCreate
    | AssertTableUuid
    | AssertRefSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
)


class _Update(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="action"):
    pass


PropertyName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TABLE_PROPERTY_NAME_CHARS_MAX)]
RefName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TABLE_REF_NAME_CHARS_MAX)]


class SetProperties(_Update, frozen=True, kw_only=True, tag="set-properties"):
    """Sets properties; existing ones get the new value."""

    updates: dict[PropertyName, str]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    """Removes properties; missing ones are no error."""

    removals: list[str]


class SetSnapshotRef(_Update, frozen=True, kw_only=True, tag="set-snapshot-ref"):
    """Creates a tag or branch, or changes the snapshot that it names."""

    ref_name: RefName
    type: Literal["tag", "branch"]
    snapshot_id: int
    max_ref_age_ms: Annotated[int, Meta(gt=0)] | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class RemoveSnapshotRef(_Update, frozen=True, kw_only=True, tag="remove-snapshot-ref"):
    """Removes a tag or branch, so that its snapshot may expire."""

    ref_name: str


Update: TypeAlias = SetProperties | RemoveProperties | SetSnapshotRef | RemoveSnapshotRef


class TableEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit of a catalog's client: requirements, and the updates to apply where they hold."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()


_decoder = JsonDecoder(TableEdit)


def decode_edit(body: bytes) -> TableEdit:
    """The edit of a commit's JSON, which has no other kinds of updates. Raises `EditInvalid`."""
    try:
        return _decoder.decode(body)
    except Undecodable as error:
        raise EditInvalid(f"{NOT_A_COMMIT}: {error}") from error


def edited(before: TableMetadata, edit: TableEdit, *, now_ms: int) -> TableMetadata:
    """The metadata with the edit applied. Raises `RequirementFailed`, `EditInvalid`."""
    for requirement in edit.requirements:
        failure = _failure(requirement, before)
        if failure:
            raise RequirementFailed(f"the table is not the one that this commit was made for: {failure}")
    properties, refs = dict(before.properties), dict(before.refs)
    for update in edit.updates:
        match update:
            case SetProperties(updates=updates):
                properties |= updates
            case RemoveProperties(removals=removals):
                for name in removals:
                    properties.pop(name, None)
            case SetSnapshotRef():
                refs[update.ref_name] = _ref(update, before)
            case RemoveSnapshotRef():
                _check_is_not_main(update.ref_name)
                refs.pop(update.ref_name, None)
    _check_sizes(properties, refs)
    return replace(before, properties=properties, refs=refs, last_updated_ms=max(now_ms, before.last_updated_ms))


def _failure(requirement: Requirement, metadata: TableMetadata) -> str:
    """The difference between the requirement and the table; "" where it is met."""
    match requirement:
        case AssertCreate():
            return "it exists"
        case AssertTableUuid(uuid=uuid):
            return _difference("its UUID", metadata.table_uuid, uuid)
        case AssertRefSnapshotId(ref=name, snapshot_id=snapshot_id):
            ref = metadata.refs.get(name)
            return _difference(f"the snapshot of {name!r}", None if ref is None else ref.snapshot_id, snapshot_id)
        case AssertLastAssignedFieldId(last_assigned_field_id=field_id):
            return _difference("its last column's id", metadata.last_column_id, field_id)
        case AssertCurrentSchemaId(current_schema_id=schema_id):
            return _difference("its schema", metadata.current_schema_id, schema_id)
        case AssertLastAssignedPartitionId(last_assigned_partition_id=partition_id):
            return _difference("its last partition field's id", metadata.last_partition_id, partition_id)
        case AssertDefaultSpecId(default_spec_id=spec_id):
            return _difference("its partition spec", metadata.default_spec_id, spec_id)
        case AssertDefaultSortOrderId(default_sort_order_id=order_id):
            return _difference("its sort order", metadata.default_sort_order_id, order_id)


def _difference(what: str, actual: object, expected: object) -> str:
    return "" if actual == expected else f"{what} is {actual}, not {expected}"


def _ref(update: SetSnapshotRef, before: TableMetadata) -> SnapshotRef:
    _check_is_not_main(update.ref_name)
    if update.snapshot_id not in {snapshot.snapshot_id for snapshot in before.snapshots}:
        raise EditInvalid(
            f"the table has no snapshot {update.snapshot_id}, or no longer: its metadata table `snapshots` lists the "
            "snapshots that can be named"
        )
    # A retention of snapshots would promise a history that a tag or branch does not have here.
    if update.min_snapshots_to_keep is not None or update.max_snapshot_age_ms is not None:
        reason = "a tag has no history" if update.type == TAG else "Penstock writes nothing to branches"
        raise EditInvalid(
            f"{update.ref_name!r} retains only the snapshot that it names ({reason}): omit its SNAPSHOT RETENTION"
        )
    max_age_ms: int | UnsetType = UNSET if update.max_ref_age_ms is None else update.max_ref_age_ms
    return SnapshotRef(snapshot_id=update.snapshot_id, type=update.type, max_ref_age_ms=max_age_ms)


def _check_is_not_main(name: str) -> None:
    if name == MAIN:
        raise EditInvalid(f"{MAIN}: {ROWS_COME_FROM_TOPIC}")


def _check_sizes(properties: Mapping[str, str], refs: Mapping[str, SnapshotRef]) -> None:
    """Limit the size of properties and names: every commit writes all of them again, and every reader reads them.

    Penstock's own properties do not count: those of a table with many typed columns exceed the limits for clients.
    """
    client_properties = {name: value for name, value in properties.items() if not name.startswith(OWN_PREFIX)}
    if len(refs) - (MAIN in refs) > TABLE_REFS_MAX:
        raise EditInvalid(f"a table has at most {TABLE_REFS_MAX} tags and branches: drop one first")
    byte_count = sum(len(name.encode()) + len(value.encode()) for name, value in client_properties.items())
    if len(client_properties) > TABLE_PROPERTIES_MAX or byte_count > TABLE_PROPERTIES_BYTES_MAX:
        raise EditInvalid(
            f"a table has at most {TABLE_PROPERTIES_MAX} properties with {TABLE_PROPERTIES_BYTES_MAX} bytes in all; "
            f"this edit would make {len(client_properties)} with {byte_count} bytes"
        )
