"""What a recovery with losses leaves of a table is read to its end, with agents and by `format("penstock")`."""

import asyncio
from collections.abc import Iterator

import pytest

from agent.bucket.cluster_identity import check_bucket
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.state import ClusterState
from iceberg_export.spark.bounds import LossReporter, plan_ranges, resolve_batch
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import parse_options
from iceberg_export.spark.planning import divide
from iceberg_export.spark.rows import Selection, read_split
from iceberg_export.tail.manifest import TailManifest, encode_manifest
from iceberg_export.tail.planner import TailTopics
from protocol.limits import MIB
from storage.memory_store import MemoryStore
from storage.refs import INTAKE_PREFIX, TAIL_KEY
from tests.support.agent.archived_files import archived_file
from tests.support.agent.data_paths import DataPaths
from tests.support.agent.fetch_paths import batch
from tests.support.agent.ledger_parts import running_parts
from tests.support.agent.recovery_clusters import ACCEPTING, TimedStore, recover, snapshot, wiped
from tests.support.commands.commands import TOPIC, create, start


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket(TimedStore())
    yield bucket
    bucket.close()


def offsets_by_spark(bucket: Bucket) -> list[int]:
    options = parse_options({"path": "memory://", "subscribe": "t"}, {}, is_stream=False)
    lake, losses = SparkLake(bucket), LossReporter(is_fatal=True)
    pieces = plan_ranges(lake, resolve_batch(lake, options, losses), losses, manifest=lake.newest)
    return sorted(
        row["offset"]
        for split in divide(pieces, 2)
        for found in read_split(bucket, split, Selection(columns=options.columns), lambda _: [])
        for row in found.to_pylist()
    )


async def publish(store: MemoryStore, state: ClusterState) -> None:
    topic = TailTopics().topic(state, TOPIC, each_max=9)
    assert topic is not None
    manifest = TailManifest(
        cluster_id=state.cluster_id,
        incarnation=state.incarnation,
        position=state.position,
        written_ms=state.time_ms,
        topics=(topic,),
    )
    await store.put(TAIL_KEY, [encode_manifest(manifest)])


async def lost_in_the_middle(store: MemoryStore) -> MemoryLedger:
    """The ledger of a cluster that was recovered without a file between two others, and an intake object behind."""
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, start(rules=RULES_NEWEST), store=store) as parts, asyncio.TaskGroup() as tasks:
        await parts.ledger.propose(create())
        paths = DataPaths(parts, tasks, 0, MIB, memory=store)
        files = [await archived_file(paths, 0) for _ in range(3)]
        before = {meta.key async for meta in store.list(INTAKE_PREFIX)}
        await paths.produce(batch(3), batch(3))
        waiting = [meta.key async for meta in store.list(INTAKE_PREFIX) if meta.key not in before]
        await snapshot(parts)
        ledger.core.expire(parts.ledger.session)
    await store.delete([files[1], waiting[0]])
    again = wiped()
    report = await recover(again, store, ACCEPTING)
    assert report.is_carried_out
    assert [topic.offsets_lost for topic in report.topics] == [6]
    return again


async def archived_again(store: MemoryStore, ledger: MemoryLedger) -> list[int]:
    """An agent begins, completes the table, and archives the rest. The offsets of all that it serves."""
    async with running_parts(ledger, start(rules=RULES_NEWEST), store=store) as parts, asyncio.TaskGroup() as tasks:
        paths = DataPaths(parts, tasks, 0, MIB, memory=store)
        await paths.archiver.archive_topic(TOPIC)
        await publish(store, parts.ledger.state)
        return [record.offset for record in await paths.consume(partition_bytes_max=MIB)]


def test_what_is_left_around_lost_files_and_objects_is_read_by_spark(bucket: Bucket) -> None:
    assert isinstance(bucket.store, MemoryStore)
    ledger = bucket.run(lost_in_the_middle(bucket.store))
    left = [0, 1, 2, 6, 7, 8, 12, 13, 14]
    assert bucket.run(archived_again(bucket.store, ledger)) == left
    assert offsets_by_spark(bucket) == left
