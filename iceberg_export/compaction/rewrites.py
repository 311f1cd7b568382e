"""What an agent and a Spark job say to each other about files that are to be rewritten, as JSON.

Rule: pure. The agent plans and names the new files; the job writes them; the agent looks at what was written, and makes
it true. A plan is of one moment: what of it was overtaken is refused, and planned again.
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
    """Why files are rewritten: small ones into large ones, or those without typed columns into some with them."""

    REWRITE = "rewrite"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Files that become one, and the name that the agent's session gives to it."""

    merge: Merge
    session: SessionId
    number: ObjectNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsPlan:
    """By what new files get their typed columns. `before`: the table's, as its files' footers have them."""

    before: str | None
    sides: str
    leaves_out: bool
    """Whether files do without the bytes of values that their columns give back."""
    schemas: dict[int, SchemaData | str]
    """All of the registry; in the place of one that cannot be used, why."""
    with_indexes: tuple[int, ...]
    """Ids of Protobuf's."""
    schema_id_next: int
    """Lower ids that are not among `schemas` were deleted for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """What is to be done now. There may be more to do after it."""

    tasks: tuple[RewriteTask, ...]
    columns: ColumnsPlan | None
    """None where the table is to have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A file that was written. `before`: the table's typed columns when its own were made of them."""

    command: ReplaceChunks
    before: str | None = None


encode_plan = msgspec.json.Encoder().encode
decode_plan = JsonDecoder(RewritePlan).decode
encode_rewritten = msgspec.json.Encoder().encode
decode_rewritten = JsonDecoder(Rewritten).decode
"""Raises `Undecodable`."""


def select(
    files: Sequence[SizedFile],
    wanted: Collection[int],
    *,
    purpose: Purpose,
    bytes_target: int,
    span_ms_max: int | None,
) -> list[range]:
    """Which neighbours of `files` become one each, of those whose numbers are `wanted`, as large as files should be.

    A single file becomes another one for typed columns alone; with a target of 0 all of them stay single. Bounded by
    `REWRITE_CHUNKS_MAX` rows of the index.
    """
    found: list[range] = []
    chunk_count = first = 0
    while first < len(files):
        if first not in wanted:
            first += 1
            continue
        stop = first
        while stop < len(files) and stop in wanted:
            stop += 1
        end, _ = longest_merge(files, range(first, stop), bytes_target, span_ms_max, COMPACTION_CHUNKS_MAX)
        if end - first > 1 or purpose is Purpose.BACKFILL:
            chunk_count += sum(file.chunk_count for file in files[first:end])
            if found and chunk_count > REWRITE_CHUNKS_MAX:
                break
            found.append(range(first, end))
        first = end
    return found
