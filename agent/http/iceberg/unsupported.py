"""Updates that engines may not make to a topic's table, and what people do instead.

Rule: a table is a topic seen by engines: rows come in by Kafka alone, and files, snapshots and schema are Penstock's.
People may set properties that none of those decide, and name snapshots (`iceberg_export.tables.edits`). So a refusal
says which of Kafka's means does what was wanted. It is 403, which clients neither repeat nor take for an unknown
outcome: they delete the files that they had written for the commit. Pure.
Source: Iceberg's REST specification, `TableUpdate`; `ErrorHandlers` and `CleanableFailure` of its Java client.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent.http.iceberg.errors import CatalogError
from iceberg_export.tables.metadata import MAIN, PROPERTIES
from protocol.decoding import JsonDecoder, Undecodable

SHOWN_MAX, SHOWN_CHARS_MAX = 5, 60
CREATE_TABLE = (
    "a table is a topic: create topic {name} with Kafka's tools, or with penstock topics create {name}, and its table "
    "is there"
)
DROP_TABLE = (
    "a table is a topic: delete topic {name} with Kafka's tools or penstock topics delete, and its table goes with it"
)
RENAME_TABLE = "a table has its topic's name, and topics keep their names"
REGISTER_TABLE = "tables are topics, so no table of others can be registered here: use a catalog of your own beside it"
CREATE_NAMESPACE = (
    "there is one namespace, lake, and every topic is a table in it: use a catalog of your own for others"
)
DROP_NAMESPACE = "namespace lake holds every topic's table and stays"
ALTER_NAMESPACE = "namespace lake has no properties that can be set"
COMMIT_MANY = (
    "tables are topics, each with a log of its own: for records produce to the topic instead, and commit properties "
    "and names to one table at a time"
)
CREATE_VIEW = "there are no views here: create it in a catalog of your own"

_ROWS = (
    "rows come from the topic: produce to it with a Kafka client to add some, use DeleteRecords or the topic's "
    "retention to delete some, and a tag or VERSION AS OF to go back; Penstock itself rewrites files"
)
_SNAPSHOTS = "Penstock expires snapshots, and files that nothing needs, by itself"
_SCHEMA = (
    "the columns are those of a Kafka record, and of registered schemas where the topic's penstock.table.columns asks "
    "for them: set that, or parse values in a view or a table of your own"
)
_LAYOUT = "Penstock decides how a topic's files are laid out"
_STATISTICS = "statistics are those that Penstock writes into manifests and files"
_PROPERTY = (
    "Penstock decides this property; comments, owners and names of your own can be set, and a topic's configs are "
    "altered with penstock topics alter, or Kafka's tools"
)
RESERVED_PREFIXES = ("penstock.", "gc.", "write.", "commit.", "history.", "encryption.", "schema.name-mapping.")
ACCESS_PREFIXES = ("s3.", "client.", "adls.", "gcs.", "hdfs.", "hf.", "rest.", "header.")
ACCESS_PROPERTIES = frozenset({"io-impl", "py-io-impl", "warehouse", "uri", "token", "credential"})
"""PyIceberg, and what reads by it, takes these of a table too: where the bucket is, which keys, and which code."""
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
    "add-snapshot": _ROWS,
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
        """Of the properties that it sets or removes."""
        return (*self.updates, *self.removals)


class _CommitBody(msgspec.Struct):
    updates: list[Update]


_decoder = JsonDecoder(_CommitBody)


def read_updates(body: bytes) -> Sequence[Update]:
    """The updates of a commit of one table. Raises `CatalogError`."""
    try:
        return _decoder.decode(body).updates
    except Undecodable as error:
        raise CatalogError(400, "BadRequestException", f"this is no commit of a table: {error}") from error


def commit_refusal(table: str, updates: Sequence[Update]) -> CatalogError | None:
    """Why these updates are not made to a table, what changes its rows first, then the others; None where they are."""
    reasons: dict[str, list[str]] = {}
    for update in updates:
        reason, what = _reason(update)
        if reason:
            reasons.setdefault(reason, []).append(what)
    if updates and not reasons:
        return None
    order = sorted(reasons, key=lambda reason: reason != _ROWS)
    reason_text = "; ".join(f"{', '.join(dict.fromkeys(reasons[reason]))}: {reason}" for reason in order)
    message = f"table {table} is a topic, and is not changed by such commits: {reason_text or 'produce to the topic'}"
    return CatalogError(403, "ForbiddenException", message)


def forbidden(message: str) -> CatalogError:
    """An operation that there is, and that nobody may do."""
    return CatalogError(403, "ForbiddenException", message)


def _reason(update: Update) -> tuple[str, str]:
    """Why not, nothing where it may be, and what it is that may not be."""
    if update.action in _REFS:
        return (_ROWS if update.ref_name == MAIN else ""), update.action
    if update.action in _OF_PROPERTIES:
        reserved = [name for name in update.names if is_reserved(name)]
        shown = ", ".join(name[:SHOWN_CHARS_MAX] for name in reserved[:SHOWN_MAX])
        return (_PROPERTY if reserved else ""), f"{update.action} {shown}"
    return _OF_ACTION.get(update.action, "Penstock does not know this update"), update.action


def is_reserved(name: str) -> bool:
    """Whether a property of that name is Penstock's to set."""
    is_named = name in RESERVED_PROPERTIES or name in ACCESS_PROPERTIES
    return is_named or name.startswith((*RESERVED_PREFIXES, *ACCESS_PREFIXES))
