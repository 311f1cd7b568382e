"""An archiver over the parts of an agent, and records for its passes."""

from collections.abc import Sequence
from dataclasses import replace

from agent.cache.chunk_cache import ChunkCache
from agent.lake.archiver import Archiver
from agent.lake.table_commits import TableCommits
from coordinator.commands.commands import ChunkColumns, ChunksCommitted, ReplaceChunks
from iceberg_export.archive.archive_pass import ArchivedPass
from iceberg_export.archive.plan import ArchivePolicy
from protocol.types import ObjectNumber, PartitionIndex, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.object_store import ObjectStore
from storage.refs import intake_key
from tests.support.agent.ledger_parts import Parts, lake_of
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit
from tests.support.records.plain_records import Record, make_batch


def archiver(
    parts: Parts,
    store: ObjectStore,
    lake: TableCommits | None = None,
    *,
    policy: ArchivePolicy | None = None,
    is_authorizer_enabled: bool = False,
    cache: ChunkCache | None = None,
) -> Archiver:
    return Archiver(
        replace(parts.context(), is_authorizer_enabled=is_authorizer_enabled),
        lake=lake_of(parts, store) if lake is None else lake,
        cache=cache or ChunkCache(bytes_max=0),
        policy=policy or ArchivePolicy(age_ms=1_000, bytes_target=1 << 30),
    )


async def produce(
    parts: Parts,
    store: ObjectStore,
    number: int,
    *,
    records: int = 3,
    values: Sequence[bytes | None] = (),
    topic_id: TopicId = TOPIC,
) -> None:
    """Put and commit an intake object with one batch of `values`, or of `records` other values."""
    values = values or [b"%d" % n for n in range(records)]
    records = len(values)
    batch = make_batch([Record(offset=n, timestamp=1_000 + n, key=b"k", value=value) for n, value in enumerate(values)])
    session = parts.ledger.session
    encoded = encode_object(
        session, ObjectNumber(number), [ChunkParts(topic_id=topic_id, partition=PartitionIndex(0), parts=[batch])]
    )
    await store.put(intake_key(session, ObjectNumber(number)), encoded.parts)
    made = Batch(records=records, size=len(batch), timestamp=1_000 + records - 1)
    command = commit(number, Chunk(topic_id=topic_id, batches=[made]), session=session)
    chunks = ChunkColumns(topic=[0], partition=[0], byte_first=encoded.byte_firsts, batch_count=[1])
    outcome = await parts.ledger.propose(replace(command, chunks=chunks, object_bytes=encoded.object_bytes))
    assert isinstance(outcome, ChunksCommitted)
    assert list(outcome.error_codes) == [0]


class ArchiverOfBefore(Archiver):
    """An archiver of a version without tables."""

    def __init__(self, archiver: Archiver) -> None:
        vars(self).update(vars(archiver))

    async def _with_table(self, archived: ArchivedPass) -> ReplaceChunks | None:
        return archived.command
