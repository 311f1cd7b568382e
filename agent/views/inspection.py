"""Shows ledger entries, intake objects, Parquet files and snapshots as plain values.

Rule: it only reads, from the ports or from bytes, so it works with a running cluster, the folder of a stopped one, and
single files. Unreadable bytes raise `InspectError` with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from io import BytesIO
from itertools import islice

from msgspec import Struct

from coordinator.codec.codec import decode
from coordinator.commands.forms import WireStruct
from coordinator.ledger.port import LedgerCorrupt, LedgerRecord
from iceberg_export.rows.checksums import check_whole
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, damage_contained, footer_bytes
from iceberg_export.rows.thrift_footer import check_footer
from protocol.errors import InvalidBatch
from protocol.limits import HTTP_ROWS_DEFAULT, INSPECTED_OBJECT_BYTES_MAX
from protocol.records.batch import split_batches
from storage.chunk_format import TAIL_BYTES_HINT, ChunkFormatError, ObjectDescription, TailTooShort, describe_object
from storage.keys import check_key
from storage.object_store import ObjectStore, StoreMisconfigured
from storage.refs import SNAPSHOT_PREFIX, TAIL_KEY

View = dict[str, object]
PARQUET_MAGIC = b"PAR1"
LIST_ITEMS_SHOWN = 20


class InspectError(Exception):
    """The bytes cannot be read as an object of Penstock; the message has the reason."""


class NoSuchKey(Exception):
    """No object of Penstock can have this key; the message has the reason."""


def check_inspectable(key: str) -> None:
    """Raise `NoSuchKey` unless an object may have this key."""
    try:
        check_key(key)
    except StoreMisconfigured as error:
        raise NoSuchKey(str(error)) from error
    # The local store keeps its own files in folders that begin with ".".
    if key.startswith("."):
        raise NoSuchKey(f"{key!r} is not a key of the bucket: none begins with '.'")


def ledger_rows(records: Sequence[LedgerRecord], *, after: int = -1, limit: int = HTTP_ROWS_DEFAULT) -> list[View]:
    """The entries above the position `after`, oldest first, each with its command."""
    return [ledger_row(record) for record in islice((r for r in records if r.position > after), limit)]


def ledger_row(record: LedgerRecord) -> View:
    """One entry. An unreadable entry gets a row with the reason."""
    row: View = {
        "position": record.position,
        "session": record.session,
        "number": record.number,
        "bytes": len(record.payload),
    }
    try:
        proposal = decode(record)
    except LedgerCorrupt as error:
        return {**row, "command": "unreadable", "reason": str(error)}
    return {
        **row,
        "time_ms": proposal.time_ms,
        "command": type(proposal.command).__name__,
        "values": plain(proposal.command),
    }


def plain(value: object) -> object:
    """A value for JSON: structs and dataclasses as dicts, bytes as hex, long sequences shortened.

    Fields with `repr=False`, and `SECRET_FIELDS` of structs, hold secrets and are left out.
    """
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Struct):
        secrets = value.SECRET_FIELDS if isinstance(value, WireStruct) else ()
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in secrets}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, Sequence) or hasattr(value, "__array__"):
        items = list(value)  # type: ignore[call-overload]
        shown = [plain(item.item() if hasattr(item, "item") else item) for item in items[:LIST_ITEMS_SHOWN]]
        return [*shown, f"... {len(items) - len(shown)} more"] if len(items) > len(shown) else shown
    return str(value)


async def inspect_object(store: ObjectStore, key: str) -> View:
    """The description of an object of the bucket. Raises `ObjectMissing`, `StoreError`, `InspectError`."""
    meta = await store.head(key)
    if meta.size_bytes > INSPECTED_OBJECT_BYTES_MAX:
        raise InspectError(f"{key} has {meta.size_bytes} bytes, more than {INSPECTED_OBJECT_BYTES_MAX}: download it")
    return {"key": key, "modified_ms": meta.modified_ms, **describe_bytes(await store.get(key), key)}


def describe_bytes(data: bytes, key: str = "") -> View:
    """The description of an object's bytes. Its kind follows from the content, and from `key` for a snapshot."""
    if data[:4] == PARQUET_MAGIC and data[-4:] == PARQUET_MAGIC:
        return _describe_parquet(data)
    if SNAPSHOT_PREFIX in key:
        return _describe_snapshot(data)
    if key.endswith(TAIL_KEY):
        return _describe_tail(data)
    return _describe_intake(data)


def _describe_intake(data: bytes) -> View:
    try:
        description = _description(data)
    except ChunkFormatError as error:
        raise InspectError(f"neither Parquet nor an intake object: {error}") from error
    view = memoryview(data)
    chunks: list[View] = []
    for chunk in description.chunks:
        row = plain(chunk)
        assert isinstance(row, dict)
        try:
            run = split_batches(view[chunk.byte_first : chunk.byte_first + chunk.byte_count])
            row["batches"] = len(run)
            row["records"] = sum(header.record_count for header in run)
        except InvalidBatch as error:
            row["damage"] = str(error)
        chunks.append(row)
    return {
        "kind": "intake",
        "bytes": len(data),
        "session": description.session,
        "number": description.number,
        "chunks": chunks,
    }


def _description(data: bytes) -> ObjectDescription:
    try:
        return describe_object(data[-TAIL_BYTES_HINT:], len(data))
    except TailTooShort as error:
        return describe_object(data[-error.bytes_needed :], len(data))


def _describe_parquet(data: bytes) -> View:
    import pyarrow.parquet as pq

    try:
        with damage_contained("it"):
            # Before pyarrow sees the bytes (safety rule S20).
            if not check_whole(data, None):
                check_footer(memoryview(data)[-footer_bytes(data) : -FOOTER_TAIL_BYTES], len(data))
            return _parquet_view(pq.ParquetFile(BytesIO(data)), len(data))
    except FileUnreadable as error:
        raise InspectError(f"the Parquet file is damaged: {error}") from error


def _parquet_view(file, byte_count: int) -> View:  # type: ignore[no-untyped-def]  # noqa: ANN001
    metadata = file.metadata
    return {
        "kind": "parquet",
        "bytes": byte_count,
        "rows": metadata.num_rows,
        "columns": [f"{field.name}: {field.type}" for field in file.schema_arrow],
        "row_groups": [_row_group_view(metadata.row_group(index)) for index in range(metadata.num_row_groups)],
    }


def _row_group_view(group) -> View:  # type: ignore[no-untyped-def]  # noqa: ANN001
    view: View = {"rows": group.num_rows, "bytes": group.total_byte_size}
    for index in range(group.num_columns):
        column = group.column(index)
        statistics = column.statistics
        if column.path_in_schema in ("partition", "offset") and statistics is not None and statistics.has_min_max:
            view[column.path_in_schema] = [statistics.min, statistics.max]
    return view


def _describe_snapshot(data: bytes) -> View:
    from agent.views.state import state_summary
    from coordinator.codec.snapshot_frame import has_checksum
    from coordinator.snapshot import decode_snapshot

    try:
        state = decode_snapshot(data)
    except LedgerCorrupt as error:
        raise InspectError(f"the snapshot is damaged: {error}") from error
    checksum = "right" if has_checksum(data) else "none: an older version wrote it"
    return {"kind": "snapshot", "bytes": len(data), "checksum": checksum, **state_summary(state)}


def _describe_tail(data: bytes) -> View:
    from iceberg_export.tail.manifest import TailUnreadable, decode_manifest

    try:
        manifest = decode_manifest(data)
    except TailUnreadable as error:
        raise InspectError(str(error)) from error
    return {
        "kind": "tail manifest",
        "bytes": len(data),
        "cluster_id": manifest.cluster_id,
        "incarnation": manifest.incarnation,
        "position": manifest.position,
        "written_ms": manifest.written_ms,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id.hex(),
                "metadata_key": topic.metadata_key,
                "partitions": [
                    {
                        "log_start": partition.log_start,
                        "archived_end": partition.archived_end,
                        "last_stable": partition.last_stable,
                        "readable_end": partition.readable_end,
                        "chunks": len(partition.chunks),
                        "bytes": partition.chunks.byte_count,
                        "aborted": len(partition.aborted),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in manifest.topics
        ],
    }
