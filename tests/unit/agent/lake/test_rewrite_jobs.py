"""A job's files come true where they hold what they stand for, and are refused otherwise."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs

from agent.lake.rewrite_jobs import LakeRewrites, NoRewrite
from agent.lake.table_commits import TableCommits
from agent.runtime.threads import run_in_thread
from coordinator.commands.commands import (
    ArchivedChunk,
    NewObject,
    PartitionReplacement,
    ReplaceChunks,
    ReplacedChunk,
    TableCommit,
)
from coordinator.configs.topic_configs import TABLE_COLUMNS, TABLE_FILE_BYTES
from coordinator.invariants import check
from coordinator.state.state import TopicState
from iceberg_export.compaction.merge import merge
from iceberg_export.compaction.rewrites import (
    ColumnsPlan,
    Purpose,
    RewriteTask,
    Rewritten,
    decode_plan,
    decode_rewritten,
    encode_plan,
    encode_rewritten,
)
from iceberg_export.jobs.rewrite import columns_of
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.tables.snapshots import REPLACE
from protocol.types import Offset, SessionId, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectExists
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.compaction import archived, file_compactor, operations, served
from tests.support.lake.registered_schemas import register
from tests.support.lake.table_files import live_files
from tests.support.lake.typed_records import avro_bytes, framed, record

FILES = 3
ORDER = record("Order", ("id", "int"))


def rewrites(parts: Parts, store: MemoryStore, lake: TableCommits) -> LakeRewrites:
    return LakeRewrites(
        archive=ParquetReader(store=store, run_in_thread=run_in_thread),
        ledger=parts.ledger,
        lake=lake,
        broker_configs={},
    )


def topic_of(parts: Parts) -> TopicState:
    return parts.ledger.state.topics[TOPIC]


async def written(task: RewriteTask, store: MemoryStore, columns: ColumnsPlan | None = None) -> Rewritten:
    """What a job makes of a task, over the wire and back."""
    made = await merge(
        task.merge,
        store=store,
        session=task.session,
        number=task.number,
        run_in_thread=run_in_thread,
        columns_of=None if columns is None else partial(columns_of, columns),
    )
    before = None if columns is None else columns.before
    return decode_rewritten(encode_rewritten(Rewritten(command=made.command, before=before)))


async def planned(made: LakeRewrites, parts: Parts) -> RewriteTask:
    plan = decode_plan(encode_plan(await made.plan(topic_of(parts), Purpose.REWRITE)))
    (task,) = plan.tasks
    assert plan.columns is None
    return task


async def test_files_become_one_with_the_same_records() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        before = await served(parts, store)
        made = rewrites(parts, store, lake)
        task = await planned(made, parts)
        assert len(task.merge.keys) == FILES
        rewritten = await written(task, store)
        await made.commit(topic_of(parts), rewritten)
        assert await served(parts, store) == before
        assert [live.file.key for live in await live_files(parts, store)] == [rewritten.command.object_key]
        assert (await operations(parts, store))[-1] == REPLACE
        assert check(parts.ledger.state) == []
        assert (await made.plan(topic_of(parts), Purpose.REWRITE)).tasks == (), "there is one file"


async def test_what_was_overtaken_is_planned_again() -> None:
    store = MemoryStore()
    async with archived(store, count=8) as (parts, lake):
        made = rewrites(parts, store, lake)
        rewritten = await written(await planned(made, parts), store)
        assert await file_compactor(parts, store, lake).compact(TOPIC) is not None
        before, files = await served(parts, store), await live_files(parts, store)
        with pytest.raises(NoRewrite) as refused:
            await made.commit(topic_of(parts), rewritten)
        assert refused.value.is_overtaken
        assert (await served(parts, store), await live_files(parts, store)) == (before, files)


Forge = Callable[[ReplaceChunks], ReplaceChunks]


def with_chunks(command: ReplaceChunks, change: Callable[[ArchivedChunk], ArchivedChunk]) -> ReplaceChunks:
    def changed(swap: PartitionReplacement) -> PartitionReplacement:
        return structs.replace(swap, archived=tuple(map(change, swap.archived)))

    return structs.replace(command, partitions=tuple(map(changed, command.partitions)))


FORGERIES: list[tuple[str, Forge]] = [
    ("the file is not of topic", lambda command: structs.replace(command, topic_id=TopicId(bytes(16)))),
    (
        "the file is not of topic",
        lambda command: structs.replace(
            command,
            table=TableCommit(
                replaces="", metadata=NewObject(key="x", object_bytes=1), added=(), data_files=(), released=()
            ),
        ),
    ),
    (
        "of another agent",
        lambda command: structs.replace(command, object_session=SessionId(command.object_session + 1)),
    ),
    (
        "not a key of this agent's plans",
        lambda command: structs.replace(command, object_key="lake/other/data/1.parquet"),
    ),
    (
        "not as the job reported it",
        lambda command: structs.replace(command, object_key=command.object_key[:-9] + "9.parquet"),
    ),
    ("rows and", lambda command: structs.replace(command, object_bytes=command.object_bytes + 1)),
    (
        "the replaced chunks have",
        lambda c: with_chunks(c, lambda chunk: structs.replace(chunk, row_count=chunk.row_count - 1)),
    ),
    (
        "not as the job reported it",
        lambda c: with_chunks(c, lambda chunk: structs.replace(chunk, row_first=chunk.row_first + 1)),
    ),
    ("not as the job reported it", lambda c: with_chunks(c, lambda chunk: structs.replace(chunk, row_group=7))),
    (
        "changed meanwhile",
        lambda c: with_chunks(c, lambda chunk: structs.replace(chunk, offset_end=Offset(chunk.offset_end + 1))),
    ),
]


@pytest.mark.parametrize(("told", "forge"), FORGERIES)
async def test_what_is_not_as_it_was_said_is_refused(told: str, forge: Forge) -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        before, files = await served(parts, store), await live_files(parts, store)
        made = rewrites(parts, store, lake)
        rewritten = await written(await planned(made, parts), store)
        with pytest.raises(NoRewrite, match=told):
            await made.commit(topic_of(parts), Rewritten(command=forge(rewritten.command)))
        assert (await served(parts, store), await live_files(parts, store)) == (before, files)
        await made.commit(topic_of(parts), rewritten)


async def test_a_file_that_lacks_a_record_is_refused() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        made = rewrites(parts, store, lake)
        task = await planned(made, parts)
        rewritten = await written(task, store)
        fewer = replace(task.merge, chunks=task.merge.chunks[:-1])
        await merge(fewer, store=store, session=task.session, number=task.number, run_in_thread=run_in_thread)
        with pytest.raises(NoRewrite, match=r"is not as the job reported it|rows and"):
            await made.commit(topic_of(parts), rewritten)
        assert len(await live_files(parts, store)) == FILES


async def test_a_second_try_of_a_task_changes_nothing_of_what_the_first_one_wrote() -> None:
    """Spark repeats tasks, also such as are not dead; what the first try wrote may be true by then."""
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        task = await planned(rewrites(parts, store, lake), parts)
        tries = [
            merge(
                task.merge,
                store=store,
                session=task.session,
                number=task.number,
                run_in_thread=run_in_thread,
                is_first_to_write=True,
            )
            for _ in range(2)
        ]
        await tries[0]
        with pytest.raises(ObjectExists):
            await tries[1]


def with_intake(parts: Parts, command: ReplaceChunks) -> ReplaceChunks:
    """The same, and the first chunk that waits to be archived is replaced with it, by no rows."""
    index = topic_of(parts).partitions[0].index
    waiting = index.row(index.intake_row)
    named = ReplacedChunk(
        offset_first=waiting.offset_first,
        offset_end=waiting.offset_end,
        object_key=parts.ledger.state.objects[waiting.object_id].key,
        byte_first=waiting.byte_first,
    )
    (swap,) = command.partitions
    last = structs.replace(swap.archived[-1], offset_end=waiting.offset_end)
    swap = structs.replace(swap, replaced=(*swap.replaced, named), archived=(*swap.archived[:-1], last))
    return structs.replace(command, partitions=(swap,))


async def test_what_is_not_archived_is_never_replaced() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        await produce(parts, store, FILES)
        made = rewrites(parts, store, lake)
        rewritten = await written(await planned(made, parts), store)
        with pytest.raises(NoRewrite, match="only archive passes"):
            await made.commit(topic_of(parts), Rewritten(command=with_intake(parts, rewritten.command)))
        index = topic_of(parts).partitions[0].index
        assert index.intake_row < len(index), "its records are there"
        await made.commit(topic_of(parts), rewritten)


async def test_files_that_are_to_stay_as_they_are_do_not_become_one() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake):
        topic_of(parts).configs[TABLE_FILE_BYTES] = "0"
        made = rewrites(parts, store, lake)
        with pytest.raises(NoRewrite, match=r"penstock\.table\.file\.bytes of t is 0"):
            await made.plan(topic_of(parts), Purpose.REWRITE)
        topic_of(parts).configs[TABLE_COLUMNS] = "value"
        plan = await made.plan(topic_of(parts), Purpose.BACKFILL)
        assert [len(task.merge.keys) for task in plan.tasks] == [1] * FILES


async def test_all_files_of_one_plan_get_the_columns_that_the_table_had_not() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        schema_id = await register(parts, json.dumps(ORDER))
        for number in range(FILES):
            await produce(parts, store, number, values=[framed(schema_id, avro_bytes(ORDER, {"id": number}))])
            await archiver(parts, store, lake).archive_topic(TOPIC)
        topic_of(parts).configs |= {TABLE_COLUMNS: "value", TABLE_FILE_BYTES: "1"}
        made = rewrites(parts, store, lake)
        plan = await made.plan(topic_of(parts), Purpose.BACKFILL)
        assert len(plan.tasks) == FILES
        second = plan.tasks[1].merge.keys[-1]
        assert len((await made.plan(topic_of(parts), Purpose.BACKFILL, behind=second)).tasks) == FILES - 2
        for task in plan.tasks:
            await made.commit(topic_of(parts), await written(task, store, plan.columns))
        assert (await made.plan(topic_of(parts), Purpose.BACKFILL)).tasks == ()


class CountingStore(MemoryStore):
    """Counts how many reads of ranges are under way at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.most = 0

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return await super().get_range(key, byte_first, byte_count)


async def test_footers_are_read_several_at_a_time() -> None:
    store = CountingStore()
    async with archived(store, count=FILES) as (parts, lake):
        topic_of(parts).configs[TABLE_COLUMNS] = "value"
        store.most = 0
        await rewrites(parts, store, lake).plan(topic_of(parts), Purpose.BACKFILL)
        assert store.most == FILES


async def test_columns_are_filled_in_only_where_some_are_wanted() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        with pytest.raises(NoRewrite, match=r"set penstock\.table\.columns"):
            await rewrites(parts, store, lake_of(parts, store)).plan(topic_of(parts), Purpose.BACKFILL)
        assert TopicId(TOPIC) in parts.ledger.state.topics
