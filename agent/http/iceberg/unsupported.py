"""Updates that engines may not make to a topic's table, each with its alternative.

Rule: a table is a topic's view for engines. Rows come from Kafka only, and Penstock owns files, snapshots and schema.
Clients may set other properties, and create branches and tags (`iceberg_export.tables.edits`). An error names the Kafka
operation that does the same. Its status is 403: clients neither retry it nor treat it as an unknown outcome, and delete
the files that they wrote for the commit. Pure.
Source: Iceberg's REST specification, `TableUpdate`; `ErrorHandlers` and `CleanableFailure` of its Java client.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent.http.iceberg.errors import CatalogError
from agent.security.audit.audit_texts import configs_text
from iceberg_export.tables.edits import NOT_A_COMMIT, ROWS_COME_FROM_TOPIC
from iceberg_export.tables.metadata import MAIN, PROPERTIES
from protocol.auth.operations import Operation
from protocol.decoding import JsonDecoder, Undecodable

SHOWN_MAX, SHOWN_CHARS_MAX = 5, 60
CREATE_TABLE = (
    "a table is a topic: create topic {name} with Kafka's tools, or with penstock topics create {name}, to get its "
    "table"
)
DROP_TABLE = "a table is a topic: delete topic {name} with Kafka's tools or penstock topics delete to delete its table"
RENAME_TABLE = "a table has its topic's name, and topics cannot be renamed"
REGISTER_TABLE = "this catalog holds only the tables of topics: register other tables in another catalog"
CREATE_NAMESPACE = (
    "this catalog has one namespace, lake, and every topic is a table in it: create others in another catalog"
)
DROP_NAMESPACE = "namespace lake holds every topic's table and cannot be dropped"
ALTER_NAMESPACE = "the properties of namespace lake cannot be set"
COMMIT_MANY = (
    "tables are topics, each with its own log: to write records produce to the topic, and commit properties, branches "
    "and tags to one table at a time"
)
CREATE_VIEW = "this catalog has no views: create the view in another catalog"

_SNAPSHOTS = "Penstock expires snapshots and deletes unreferenced files itself"
_SCHEMA = (
    "the columns are those of a Kafka record, and of registered schemas where the topic's penstock.table.columns "
    "selects them: set that, or parse values in a view or another table"
)
_LAYOUT = "Penstock decides how a topic's files are laid out"
_STATISTICS = "Penstock writes the statistics into manifests and files itself"
_PROPERTY = (
    "Penstock sets this property itself; set a comment, an owner or a property with another name instead, and alter a "
    "topic's configs with penstock topics alter, or Kafka's tools"
)
RESERVED_PREFIXES = ("penstock.", "gc.", "write.", "commit.", "history.", "encryption.", "schema.name-mapping.")
ACCESS_PREFIXES = ("s3.", "client.", "adls.", "gcs.", "hdfs.", "hf.", "rest.", "header.")
ACCESS_PROPERTIES = frozenset({"io-impl", "py-io-impl", "warehouse", "uri", "token", "credential"})
"""PyIceberg also reads these from a table: the bucket's address, credentials, and classes to import."""
RESERVED_PROPERTIES = frozenset(
    {
        *PROPERTIES,
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Properties that Penstock sets itself, and `TableProperties.RESERVED_PROPERTIES` of Iceberg's Java library."""
_OF_ACTION: Mapping[str, str] = {
    "add-snapshot": ROWS_COME_FROM_TOPIC,
    "remove-snapshots": _SNAPSHOTS,
    "add-schema": _SCHEMA,
    "set-current-schema": _SCHEMA,
    "remove-schemas": _SCHEMA,
    "add-spec": _LAYOUT,
    "set-default-spec": _LAYOUT,
    "remove-partition-specs": _LAYOUT,
    "add-sort-order": _LAYOUT,
    "set-default-sort-order": _LAYOUT,
    "set-location": "a topic's files stay in its folder of the bucket",
    "upgrade-format-version": "Penstock decides the format's version",
    "assign-uuid": "a table's UUID is its topic's id",
    "add-encryption-key": "files are encrypted by the bucket (AWS_SERVER_SIDE_ENCRYPTION)",
    "remove-encryption-key": "files are encrypted by the bucket (AWS_SERVER_SIDE_ENCRYPTION)",
    "set-statistics": _STATISTICS,
    "remove-statistics": _STATISTICS,
    "set-partition-statistics": _STATISTICS,
    "remove-partition-statistics": _STATISTICS,
}
_REFS = frozenset({"set-snapshot-ref", "remove-snapshot-ref"})
_OF_PROPERTIES = frozenset({"set-properties", "remove-properties"})


class Update(msgspec.Struct, rename="kebab"):
    """The fields of a `TableUpdate` that are checked."""

    action: str
    ref_name: str = ""
    updates: dict[str, object] = {}
    removals: list[str] = []

    @property
    def names(self) -> Iterable[str]:
        """The names of the properties that it sets or removes."""
        return (*self.updates, *self.removals)


class _CommitBody(msgspec.Struct):
    updates: list[Update]


_decoder = JsonDecoder(_CommitBody)


def read_updates(body: bytes) -> Sequence[Update]:
    """The updates of a commit of one table. Raises `CatalogError`."""
    try:
        return _decoder.decode(body).updates
    except Undecodable as error:
        raise CatalogError(400, "BadRequestException", f"{NOT_A_COMMIT}: {error}") from error


def commit_rejection(table: str, updates: Sequence[Update]) -> CatalogError | None:
    """The error for updates that are not allowed, with those of rows first; None where all are allowed."""
    reasons: dict[str, list[str]] = {}
    for update in updates:
        reason, what = _reason(update)
        if reason:
            reasons.setdefault(reason, []).append(what)
    if updates and not reasons:
        return None
    ordered = sorted(reasons, key=lambda reason: reason != ROWS_COME_FROM_TOPIC)
    reason_text = "; ".join(f"{', '.join(dict.fromkeys(reasons[reason]))}: {reason}" for reason in ordered)
    message = f"table {table} is a topic, which such commits cannot change: {reason_text or 'produce to the topic'}"
    return CatalogError(403, "ForbiddenException", message)


def required_operations(updates: Sequence[Update]) -> list[Operation]:
    """The operations on the topic that allowed updates need: properties are configs, tags and branches keep files."""
    actions = {update.action for update in updates}
    needed = ((Operation.ALTER_CONFIGS, _OF_PROPERTIES), (Operation.ALTER, _REFS))
    return [operation for operation, kinds in needed if not actions.isdisjoint(kinds)]


def shown(updates: Sequence[Update]) -> str:
    """Allowed updates in words, for the audit log."""
    return "; ".join(map(_shown, updates))


def _shown(update: Update) -> str:
    parts = (update.action, update.ref_name, configs_text(update.updates.items()), ", ".join(update.removals))
    return " ".join(filter(None, parts))


def forbidden(message: str) -> CatalogError:
    """The 403 of an operation that the catalog knows and never allows."""
    return CatalogError(403, "ForbiddenException", message)


def _reason(update: Update) -> tuple[str, str]:
    """The reason against an update, empty where it is allowed, and its name for the message."""
    if update.action in _REFS:
        return (ROWS_COME_FROM_TOPIC if update.ref_name == MAIN else ""), update.action
    if update.action in _OF_PROPERTIES:
        reserved = [name for name in update.names if is_reserved(name)]
        shown = ", ".join(name[:SHOWN_CHARS_MAX] for name in reserved[:SHOWN_MAX])
        return (_PROPERTY if reserved else ""), f"{update.action} {shown}"
    return _OF_ACTION.get(update.action, "Penstock does not support this update"), update.action


def is_reserved(name: str) -> bool:
    """Whether only Penstock may set a property of that name."""
    is_named = name in RESERVED_PROPERTIES or name in ACCESS_PROPERTIES
    return is_named or name.startswith((*RESERVED_PREFIXES, *ACCESS_PREFIXES))
