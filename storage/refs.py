"""Names of objects in the bucket, and references into them.

Rule: every key carries the session that writes it (safety rule S6), so that the remains of a dead session can be
distinguished from what a live one is still writing. Layout: docs/design/bucket.md.
"""

from enum import IntEnum
from typing import NamedTuple

from protocol.limits import FOLDER_NAME_BYTES_MAX, SHORT_TOPIC_NAME_BYTES
from protocol.types import ObjectNumber, Position, SessionId, TopicId

INTAKE_PREFIX = "intake/"
LAKE_PREFIX = "lake/"
SNAPSHOT_PREFIX = "ledger/snapshots/"
REACHED_PREFIX = "ledger/reached/"
VERSION_HINT = "version-hint.text"
"""Names the newest copy of a table's metadata to readers without a catalog (Iceberg's `HadoopTableOperations`)."""
SHORTENED_MARK = "!"
"""No topic's name has it, so a shortened name is never taken for a whole one. It is one of the characters that Amazon
S3 calls safe in keys ("Naming Amazon S3 objects")."""
METADATA_SUFFIX = ".metadata.json"
MANIFEST_LIST_SUFFIX = ".snap.avro"
MANIFEST_SUFFIX = ".manifest.avro"
TAIL_KEY = "ledger/tail/current"
"""The key of the tail manifest (`iceberg_export.tail.manifest`). It names no session and is overwritten in place:
readers go by the position inside it. Its loss loses no data."""


class ObjectKind(IntEnum):
    """The kind of an object's bytes."""

    INTAKE = 0
    """Record batches as producers sent them: `storage.chunk_format`."""
    PARQUET = 1
    """Archived records, a row group or a run of rows per chunk: `iceberg_export.parquet.writer`."""
    TABLE_METADATA = 2
    """The metadata that makes data files a table: `iceberg_export.tables`."""


def intake_key(session: SessionId, number: ObjectNumber) -> str:
    """The key of a session's n-th intake object; keys of one session sort by number."""
    return f"{INTAKE_PREFIX}{session:016x}/{number:016x}"


def intake_session_prefix(session: SessionId) -> str:
    """The prefix of everything that a session wrote to the intake."""
    return f"{INTAKE_PREFIX}{session:016x}/"


def short_name(topic_name: str) -> str:
    """A topic's name as its folder has it: the beginning of one with which the folder's name would be too long.

    Kafka shortens the names of its folders too, where it appends to them (`LocalLog.logDirNameWithSuffixCappedLength`,
    4.3). Names that fit stay whole, as tables that are there have them. `SHORTENED_MARK` ends one that is shortened.
    """
    is_short = len(topic_name) + 1 + _TOPIC_ID_DIGITS <= FOLDER_NAME_BYTES_MAX  # names of topics are ASCII
    return topic_name if is_short else f"{topic_name[:SHORT_TOPIC_NAME_BYTES]}{SHORTENED_MARK}"


def name_in_folder(key: str) -> str:
    """The topic's name, whole or shortened, in the key of an object of its table."""
    return key.split("/")[1][: -_TOPIC_ID_DIGITS - 1]


def topic_folder(topic_name: str, topic_id: TopicId) -> str:
    """The folder of a topic's table. The id keeps a re-created topic apart from its predecessor.

    `topic_name`: as in the folder, for which `coordinator.state.table_folders` knows the one of a topic; so everywhere
    here.
    """
    return f"{LAKE_PREFIX}{topic_name}-{topic_id.hex()}/"


def parquet_key(
    topic_name: str, topic_id: TopicId, session: SessionId, number: ObjectNumber, *, is_merged: bool = False
) -> str:
    """The key of the n-th object of a session, as a data file of a topic's table.

    `is_merged`: it holds what several archive passes wrote, and the number's highest bit says so. So the key has the
    form that all versions know.
    """
    shown = number | _MERGED_BIT if is_merged else number
    return f"{topic_folder(topic_name, topic_id)}data/{session:016x}-{shown:016x}{_PARQUET_SUFFIX}"


def is_merged_key(key: str) -> bool:
    """Whether a data file holds what several archive passes wrote. Earlier versions did not say so in the key."""
    match key.split("/"):
        case ["lake", _, "data", name] if _session_of_name(name.removesuffix(_PARQUET_SUFFIX)) is not None:
            return bool(int(name.removesuffix(_PARQUET_SUFFIX).partition("-")[2], 16) & _MERGED_BIT)
        case _:
            return False


def table_metadata_folder(topic_name: str, topic_id: TopicId) -> str:
    """Where everything lies that makes a topic's data files a table."""
    return f"{topic_folder(topic_name, topic_id)}metadata/"


def table_metadata_key(
    topic_name: str, topic_id: TopicId, session: SessionId, number: ObjectNumber, suffix: str
) -> str:
    """The key of the n-th object of a session, as metadata of a topic's table; `suffix` says of which kind."""
    return f"{table_metadata_folder(topic_name, topic_id)}{session:016x}-{number:016x}{suffix}"


def metadata_copy_key(topic_name: str, topic_id: TopicId, version: int) -> str:
    """The copy of a table's metadata for readers without a catalog; its name is theirs, so it carries no session."""
    return f"{table_metadata_folder(topic_name, topic_id)}v{version}{METADATA_SUFFIX}"


def version_hint_key(topic_name: str, topic_id: TopicId) -> str:
    """The key of the file that such readers read first."""
    return f"{table_metadata_folder(topic_name, topic_id)}{VERSION_HINT}"


def version_of_copy(key: str) -> int | None:
    """The version of a copy that `metadata_copy_key` names; None where the key is not one of these."""
    name = key.rpartition("/")[2]
    digits = name.removeprefix("v").removesuffix(METADATA_SUFFIX)
    if name == f"v{digits}{METADATA_SUFFIX}" and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def topic_of_copy(key: str) -> TopicId | None:
    """The topic for whose readers without a catalog a key is there; None where it is not one of theirs."""
    match key.split("/"):
        case ["lake", folder, "metadata", name] if name == VERSION_HINT or version_of_copy(key) is not None:
            return topic_of_folder(folder)
        case _:
            return None


def topic_of_parquet_key(key: str) -> TopicId | None:
    """The topic whose table a data file belongs to; None where the key is not one of `parquet_key`."""
    match key.split("/"):
        case ["lake", folder, "data", _]:
            return topic_of_folder(folder)
        case _:
            return None


def topic_of_metadata_key(key: str, topic_name: str) -> TopicId | None:
    """The topic of that name whose table's metadata JSON a session wrote under a key; None where the key is none of
    these."""
    match key.split("/"):
        case ["lake", folder, "metadata", name] if name.endswith(METADATA_SUFFIX):
            topic_id = topic_of_folder(folder)
            is_ours = _session_of_name(name.removesuffix(METADATA_SUFFIX)) is not None
            ending = f"-{folder[-_TOPIC_ID_DIGITS:]}"
            is_of_name = folder in {f"{topic_name}{ending}", f"{short_name(topic_name)}{ending}"}
            return topic_id if is_ours and is_of_name else None
        case _:
            return None


class ByteRange(NamedTuple):
    """Bytes `[byte_first, byte_first + byte_count)` of one object."""

    key: str
    byte_first: int
    byte_count: int


def snapshot_key(position: Position) -> str:
    """The key of the state's snapshot at a position of the ledger."""
    return f"{SNAPSHOT_PREFIX}{position:016x}"


def reached_key(position: Position) -> str:
    """The key of a mark that says: the ledger has reached this position."""
    return f"{REACHED_PREFIX}{position:016x}"


def position_of_key(key: str) -> Position | None:
    """The position that a snapshot's or a mark's key names; None where the key is neither."""
    match key.split("/"):
        case ["ledger", "snapshots" | "reached", position] if _is_number(position):
            return Position(int(position, 16))
        case _:
            return None


def session_of_key(key: str) -> SessionId | None:
    """The session that wrote an object, from its key; None where the key is not one that this module makes."""
    match key.split("/"):
        case ["intake", session, number] if _is_number(session) and _is_number(number):
            return SessionId(int(session, 16))
        case ["lake", folder, "data", name] if folder and name.endswith(_PARQUET_SUFFIX):
            return _session_of_name(name.removesuffix(_PARQUET_SUFFIX))
        case ["lake", folder, "metadata", name] if folder:
            stem, dot, suffix = name.partition(".")
            return _session_of_name(stem) if dot + suffix in _METADATA_SUFFIXES else None
        case _:
            return None


def number_of_intake_key(key: str) -> ObjectNumber | None:
    """The number of an intake object among its session's; None where the key is not one of `intake_key`."""
    match key.split("/"):
        case ["intake", session, number] if _is_number(session) and _is_number(number):
            return ObjectNumber(int(number, 16))
        case _:
            return None


_PARQUET_SUFFIX = ".parquet"
_MERGED_BIT = 1 << 63
_METADATA_SUFFIXES = frozenset({METADATA_SUFFIX, MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX})
_NUMBER_DIGITS = 16
_TOPIC_ID_DIGITS = 32


def topic_of_folder(folder: str) -> TopicId | None:
    """The topic whose table lies in a folder, `NAME-ID` without slashes; None where no id ends its name."""
    digits = folder[-_TOPIC_ID_DIGITS:]
    if len(digits) == _TOPIC_ID_DIGITS and _is_hexadecimal(digits):
        return TopicId(bytes.fromhex(digits))
    return None


def _session_of_name(stem: str) -> SessionId | None:
    session, separator, number = stem.partition("-")
    if separator and _is_number(session) and _is_number(number):
        return SessionId(int(session, 16))
    return None


def _is_number(text: str) -> bool:
    return len(text) == _NUMBER_DIGITS and _is_hexadecimal(text)


def _is_hexadecimal(text: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in text)
