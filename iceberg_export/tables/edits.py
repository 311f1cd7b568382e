"""What people change of a table through a catalog: its properties, and names for snapshots that are to stay.

Rule: pure. An edit holds as a whole or not at all, of the metadata that its requirements describe. Which properties are
people's to change is the catalog's to say.

A tag, or a branch, names a snapshot that is there; nothing is written to a branch, so it keeps that one and no other.
`main` is Penstock's.

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


class RequirementFailed(Exception):
    """The table is not as the edit was made for: it has to be made anew. The message says what differs."""


class EditInvalid(Exception):
    """The edit cannot be made of this table. The message says why, and what can."""


class _Requirement(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="type"):
    pass


class AssertCreate(_Requirement, frozen=True, kw_only=True, tag="assert-create"):
    """There is no such table: never so of a topic's."""


class AssertTableUuid(_Requirement, frozen=True, kw_only=True, tag="assert-table-uuid"):
    """The topic was not created anew meanwhile."""

    uuid: str


class AssertRefSnapshotId(_Requirement, frozen=True, kw_only=True, tag="assert-ref-snapshot-id"):
    """A name is of that snapshot, or, with None or without one, not given yet."""

    ref: str
    snapshot_id: int | None = None


class AssertLastAssignedFieldId(_Requirement, frozen=True, kw_only=True, tag="assert-last-assigned-field-id"):
    """No column came meanwhile."""

    last_assigned_field_id: int


class AssertCurrentSchemaId(_Requirement, frozen=True, kw_only=True, tag="assert-current-schema-id"):
    """The schema is still the same."""

    current_schema_id: int


class AssertLastAssignedPartitionId(_Requirement, frozen=True, kw_only=True, tag="assert-last-assigned-partition-id"):
    """No partition field came meanwhile."""

    last_assigned_partition_id: int


class AssertDefaultSpecId(_Requirement, frozen=True, kw_only=True, tag="assert-default-spec-id"):
    """The partition spec is still the same."""

    default_spec_id: int


class AssertDefaultSortOrderId(_Requirement, frozen=True, kw_only=True, tag="assert-default-sort-order-id"):
    """The sort order is still the same."""

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
    """Those that there are get another value."""

    updates: dict[PropertyName, str]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    """Those that are not there are none the less removed."""

    removals: list[str]


class SetSnapshotRef(_Update, frozen=True, kw_only=True, tag="set-snapshot-ref"):
    """A name for a snapshot, new or of another one so far."""

    ref_name: RefName
    type: Literal["tag", "branch"]
    snapshot_id: int
    max_ref_age_ms: Annotated[int, Meta(gt=0)] | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class RemoveSnapshotRef(_Update, frozen=True, kw_only=True, tag="remove-snapshot-ref"):
    """Its snapshot may expire."""

    ref_name: str


Update: TypeAlias = SetProperties | RemoveProperties | SetSnapshotRef | RemoveSnapshotRef


class TableEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What a catalog's client sends."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()


_decoder = JsonDecoder(TableEdit)


def decode_edit(body: bytes) -> TableEdit:
    """Out of the JSON of a commit that holds no other updates. Raises `EditInvalid`."""
    try:
        return _decoder.decode(body)
    except Undecodable as error:
        raise EditInvalid(f"this is no commit of a table: {error}") from error


def edited(before: TableMetadata, edit: TableEdit, *, now_ms: int) -> TableMetadata:
    """The metadata with the edit. Raises `RequirementFailed`, `EditInvalid`."""
    for requirement in edit.requirements:
        failure = _failure(requirement, before)
        if failure:
            raise RequirementFailed(f"the table is another one than this commit was made for: {failure}")
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
    """What differs; nothing where it holds."""
    match requirement:
        case AssertCreate():
            return "it is there already"
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


def _difference(what: str, found: object, wanted: object) -> str:
    return "" if found == wanted else f"{what} is {found}, and not {wanted}"


def _ref(update: SetSnapshotRef, before: TableMetadata) -> SnapshotRef:
    _check_is_not_main(update.ref_name)
    if update.snapshot_id not in {snapshot.snapshot_id for snapshot in before.snapshots}:
        raise EditInvalid(
            f"the table has no snapshot {update.snapshot_id} (any more): its metadata table `snapshots` shows those "
            "that can be named"
        )
    if update.min_snapshots_to_keep is not None or update.max_snapshot_age_ms is not None:
        kept = "a tag has no other" if update.type == TAG else "nothing is written to branches here"
        raise EditInvalid(
            f"{update.ref_name!r} keeps the snapshot that it names, and {kept}: leave its SNAPSHOT RETENTION out"
        )
    max_age_ms: int | UnsetType = UNSET if update.max_ref_age_ms is None else update.max_ref_age_ms
    return SnapshotRef(snapshot_id=update.snapshot_id, type=update.type, max_ref_age_ms=max_age_ms)


def _check_is_not_main(name: str) -> None:
    if name == MAIN:
        raise EditInvalid(f"{MAIN} is the topic: it is moved by records alone")


def _check_sizes(properties: Mapping[str, str], refs: Mapping[str, SnapshotRef]) -> None:
    """Every commit writes all of it again, and every reader reads it.

    Penstock's own count for nothing: those of a table with many typed columns are longer than all that people may set.
    """
    own = {name: value for name, value in properties.items() if not name.startswith(OWN_PREFIX)}
    if len(refs) - (MAIN in refs) > TABLE_REFS_MAX:
        raise EditInvalid(f"a table has {TABLE_REFS_MAX} tags and branches at most: drop one")
    byte_count = sum(len(name.encode()) + len(value.encode()) for name, value in own.items())
    if len(own) > TABLE_PROPERTIES_MAX or byte_count > TABLE_PROPERTIES_BYTES_MAX:
        raise EditInvalid(
            f"a table has {TABLE_PROPERTIES_MAX} properties of {TABLE_PROPERTIES_BYTES_MAX} bytes in all at most, and "
            f"would have {len(own)} of {byte_count}"
        )
