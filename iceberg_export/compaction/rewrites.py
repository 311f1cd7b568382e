"""The JSON that an agent and a Spark job exchange about files to rewrite. Pure.

The agent plans, and names the new files. The job writes them. The agent checks the written files, and commits them. The
topic may change after a plan: the agent rejects tasks that no longer fit, and the job asks for another plan.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from coordinator.commands.commands import ReplaceChunks
from iceberg_export.compaction.merge import Merge
from iceberg_export.compaction.plan import SizedFile, longest_merge
from iceberg_export.typed.schema_data import SchemaData
from protocol.decoding import JsonDecoder
from protocol.limits import COMPACTION_CHUNKS_MAX, REWRITE_CHUNKS_MAX
from protocol.types import ObjectNumber, SessionId


class Purpose(StrEnum):
    """The reason of a rewrite: small files become large ones, or files without typed columns get them."""

    REWRITE = "rewrite"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Files that become one, and the session and object number that the new file's key is made of."""

    merge: Merge
    session: SessionId
    number: ObjectNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsPlan:
    """The data from which a job derives the typed columns of new files."""

    before: str | None
    """The table's typed columns, in the JSON of its files' footers; None where it has none."""
    sides: str
    """The value of `penstock.table.columns`: whether keys, values or both become columns."""
    leaves_out: bool
    """True where files leave out the bytes of values that their columns can reproduce."""
    schemas: dict[int, SchemaData | str]
    """All schemas of the registry by id; for one that cannot be used, the reason."""
    with_indexes: tuple[int, ...]
    """The ids of Protobuf schemas, whose records have message indexes."""
    schema_id_next: int
    """The id of the next schema. A lower id that is not in `schemas` was deleted permanently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """The next rewrites of a topic. There may be more after them."""

    tasks: tuple[RewriteTask, ...]
    columns: ColumnsPlan | None
    """None where the new files get no typed columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A file that a job wrote."""

    command: ReplaceChunks
    before: str | None = None
    """The table's typed columns from which the file's own were derived; None where there were none."""


encode_plan = msgspec.json.Encoder().encode
decode_plan = JsonDecoder(RewritePlan).decode
encode_rewritten = msgspec.json.Encoder().encode
decode_rewritten = JsonDecoder(Rewritten).decode
"""Raises `Undecodable`."""


def select(
    files: Sequence[SizedFile],
    selected: Collection[int],
    *,
    purpose: Purpose,
    bytes_target: int,
    span_ms_max: int | None,
) -> list[range]:
    """The rewrites of a plan: ranges of `files`, each of which becomes one file of at most about `bytes_target`.

    `selected`: indexes of the files that may be rewritten. `bytes_target`: 0 rewrites each file by itself. Only
    `Purpose.BACKFILL` rewrites a file by itself. All ranges together have at most `REWRITE_CHUNKS_MAX` rows of the
    index, unless the first one alone has more.
    """
    ranges: list[range] = []
    chunk_count = first = 0
    while first < len(files):
        if first not in selected:
            first += 1
            continue
        stop = first
        while stop < len(files) and stop in selected:
            stop += 1
        end, _ = longest_merge(files, range(first, stop), bytes_target, span_ms_max, COMPACTION_CHUNKS_MAX)
        if end - first > 1 or purpose is Purpose.BACKFILL:
            chunk_count += sum(file.chunk_count for file in files[first:end])
            if ranges and chunk_count > REWRITE_CHUNKS_MAX:
                break
            ranges.append(range(first, end))
        first = end
    return ranges
