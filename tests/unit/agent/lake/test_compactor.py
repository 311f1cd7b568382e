"""Small files become one, in the log and in the table, whatever happens in between; readers see no difference."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from agent.lake.damaged_inputs import DamagedInputs
from agent.runtime.threads import run_in_thread
from agent.views.tables import lake_rows
from coordinator.commands.commands import DeleteTopic
from coordinator.invariants import check
from iceberg_export.compaction.merge import Merge, MergedFile, merge
from iceberg_export.compaction.topic_files import merge_chunks, topic_files
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.tables.manifest_changes import FilesNotInTable
from iceberg_export.tables.snapshots import REPLACE
from protocol.limits import COMPACTION_DAMAGED_SECONDS_FIRST, COMPACTION_DAMAGED_SECONDS_MAX
from protocol.types import ObjectNumber
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectMissing
from storage.refs import is_merged_key
from tests.support.agent.ledger_parts import ManualClock, Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create, delete_before
from tests.support.lake.compaction import FILES, archived, file_compactor, operations, served, small_files
from tests.support.lake.table_files import GRACE_MS, expire_snapshots, files_of_log, live_files


def outcomes(parts: Parts, outcome: str) -> float:
    value: float = parts.metrics.compaction_runs.labels("files", outcome)._value.get()
    return value


async def test_small_files_become_one_with_the_same_records_for_consumers_and_in_the_table() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake):
        before = await served(parts, store)
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        assert merged.file.record_count == 3 * FILES
        assert is_merged_key(merged.file.key)
        assert await served(parts, store) == before
        assert [record.offset for record in before] == list(range(3 * FILES))
        assert [live.file.key for live in await live_files(parts, store)] == [merged.file.key]
        assert await operations(parts, store) == ["append"] * FILES + [REPLACE]
        assert check(parts.ledger.state) == []
        assert outcomes(parts, "done") == 1


@pytest.mark.parametrize(("files", "is_merged"), [(1, False), (FILES, True)], ids=["of a pass", "merged"])
async def test_a_file_that_is_rewritten_alone_says_what_it_said_before(files: int, *, is_merged: bool) -> None:
    store = MemoryStore()
    async with archived(store, count=files) as (parts, lake):
        await file_compactor(parts, store, lake).compact(TOPIC)
        indexes = [partition.index.archived() for partition in parts.ledger.state.topics[TOPIC].partitions]
        (file,) = topic_files(indexes)
        stored = parts.ledger.state.objects[file.object_id]
        planned = Merge(
            topic_id=TOPIC,
            name="t",
            keys=(stored.key,),
            file_bytes=stored.object_bytes,
            chunks=merge_chunks([file], indexes),
        )
        rewritten = await merge(
            planned,
            store=store,
            session=parts.ledger.session,
            number=ObjectNumber(100),
            run_in_thread=run_in_thread,
        )
        assert is_merged_key(stored.key) is is_merged
        assert is_merged_key(rewritten.command.object_key) is is_merged


async def test_nothing_is_merged_while_files_are_few_and_nothing_twice() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        compacting = file_compactor(parts, store, lake)
        assert await compacting.compact(TOPIC) is None, "no table yet"
        await small_files(parts, store, lake, count=2)
        assert await compacting.compact(TOPIC) is None
        await small_files(parts, store, lake, count=FILES - 2, first=2)
        assert await compacting.compact(TOPIC) is not None
        assert await compacting.compact(TOPIC) is None


async def test_a_topic_may_want_its_files_as_they_are() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_file_bytes="0"))
        lake = lake_of(parts, store)
        await small_files(parts, store, lake)
        assert await file_compactor(parts, store, lake).compact(TOPIC) is None


async def test_what_was_merged_is_shown_as_what_older_snapshots_hold() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake):
        (before,) = lake_rows(parts.ledger.state, 1)
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        (row,) = lake_rows(parts.ledger.state, 1)
        assert (row["files"], row["bytes"]) == (1, merged.file.object_bytes)
        assert (row["older_files"], row["older_bytes"]) == (FILES, before["bytes"])


async def test_what_was_merged_goes_once_no_snapshot_that_stays_needs_it() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake):
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        keeping = expire_snapshots(parts, lake)
        await keeping.update_table(TOPIC)
        assert len(files_of_log(parts)) == FILES + 1, "readers of older snapshots still find their files"
        parts.clock.seconds += 2 * GRACE_MS / 1000
        await keeping.update_table(TOPIC)
        assert files_of_log(parts) == [merged.file.key]
        assert check(parts.ledger.state) == []


async def test_records_that_were_deleted_are_left_out() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES + 1) as (parts, lake):
        await parts.ledger.propose(delete_before(4))
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        assert merged.file.bounds is not None
        assert merged.file.bounds.offset_min == 3, "a file goes as a whole, and its first one went"
        assert [record.offset for record in await served(parts, store)] == list(range(3, 3 * FILES + 3))
        await expire_snapshots(parts, lake).update_table(TOPIC)
        assert sum(live.file.record_count for live in await live_files(parts, store)) == 3 * FILES


class DoingStore(MemoryStore):
    """Does something once, before the first data file of a merge is put."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        if self.meanwhile is not None and "/data/" in key:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        await super().put(key, parts, if_absent=if_absent)


async def test_a_pass_goes_on_while_files_are_merged() -> None:
    store = DoingStore()
    async with archived(store) as (parts, lake):
        store.meanwhile = lambda: small_files(parts, store, lake, count=1, first=FILES)
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        assert [record.offset for record in await served(parts, store)] == list(range(3 * FILES + 3))
        assert sum(live.file.record_count for live in await live_files(parts, store)) == 3 * FILES + 3
        assert check(parts.ledger.state) == []


async def test_of_two_merges_of_the_same_files_one_is_given_up() -> None:
    store = DoingStore()
    async with archived(store) as (parts, lake):
        other: list[MergedFile | None] = []

        async def merge_too() -> None:
            other.append(await file_compactor(parts, store, lake).compact(TOPIC))

        store.meanwhile = merge_too
        with pytest.raises(FilesNotInTable):
            await file_compactor(parts, store, lake).compact(TOPIC)
        assert [merged is not None for merged in other] == [True]
        assert len(await served(parts, store)) == 3 * FILES
        assert check(parts.ledger.state) == []


async def test_deleted_records_during_a_merge_have_it_refused() -> None:
    store = DoingStore()
    async with archived(store) as (parts, lake):
        store.meanwhile = lambda: parts.ledger.propose(delete_before(3))
        assert await file_compactor(parts, store, lake).compact(TOPIC) is None
        assert outcomes(parts, "rejected") == 1
        assert [record.offset for record in await served(parts, store)] == list(range(3, 3 * FILES))


async def test_a_topic_that_is_deleted_during_a_merge_ends_it() -> None:
    store = DoingStore()
    async with archived(store) as (parts, lake):
        store.meanwhile = lambda: parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        assert await file_compactor(parts, store, lake).compact(TOPIC) is None
        assert not parts.ledger.state.objects


async def test_a_damaged_file_is_reported_and_nothing_is_replaced() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake):
        key = files_of_log(parts)[3]
        data = bytearray(await store.get(key))
        data[-8:-4] = (len(data) * 2).to_bytes(4, "little")
        await store.delete([key])
        await store.put(key, [bytes(data)])
        compacting = file_compactor(parts, store, lake)
        with pytest.raises(FileUnreadable):
            await compacting.compact(TOPIC)
        assert len(files_of_log(parts)) == FILES
        with pytest.raises(FileUnreadable):
            await file_compactor(parts, store, lake)._compact_all(TOPIC)
        assert outcomes(parts, "failed") == 1
        assert len(files_of_log(parts)) == FILES
        merged = await compacting.compact(TOPIC)
        assert merged is not None, "the others are merged without it"
        assert key not in {chunk.object_key for swap in merged.command.partitions for chunk in swap.replaced}


def indexed(parts: Parts) -> set[str]:
    """The keys of the files that consumers read."""
    index, state = parts.ledger.state.topics[TOPIC].partitions[0].index, parts.ledger.state
    return {state.objects[index.row(row).object_id].key for row in range(index.intake_row)}


async def test_a_damaged_file_that_was_put_back_is_merged_after_a_pause_without_a_restart() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES + 1) as (parts, lake):
        key = files_of_log(parts)[FILES]
        right = await store.get(key)
        await store.put(key, [right[:-4] + b"PAR2"])
        compacting = file_compactor(parts, store, lake)
        for _ in range(3):
            await compacting.turn()
            parts.clock.seconds += 5
        assert key in indexed(parts)
        assert len(indexed(parts)) == 2, "the others were merged"
        await small_files(parts, store, lake, count=FILES - 1, first=FILES + 1)
        await compacting.turn()
        assert len(indexed(parts)) == 2 + FILES - 1, "too few without the damaged one"
        await store.put(key, [right])
        await compacting.turn()
        assert key in indexed(parts), "its pause is not over"
        parts.clock.seconds += COMPACTION_DAMAGED_SECONDS_FIRST
        await compacting.turn()
        assert key not in indexed(parts)
        assert [record.offset for record in await served(parts, store)] == list(range(3 * 2 * FILES))


async def test_a_file_that_stays_damaged_is_tried_again_with_growing_pauses() -> None:
    clock = ManualClock()
    damaged = DamagedInputs[str](clock=clock)
    damaged.exclude(TOPIC, ["a", "b"])
    assert (damaged.excluded, damaged.end_pauses()) == ({"a", "b"}, set())
    pauses = list[float]()
    for _ in range(7):
        began_s = clock.seconds
        while not damaged.end_pauses():
            clock.seconds += 60
        assert damaged.excluded == set()
        assert damaged.end_pauses() == set(), "said once"
        pauses.append(clock.seconds - began_s)
        damaged.exclude(TOPIC, ["a"])
    assert pauses[:3] == [COMPACTION_DAMAGED_SECONDS_FIRST * factor for factor in (1, 2, 4)]
    assert pauses[-2:] == [COMPACTION_DAMAGED_SECONDS_MAX] * 2
    damaged.forget_others(["b"])
    assert damaged.excluded == set()


async def test_inputs_that_are_tried_on_demand_keep_their_pause() -> None:
    clock = ManualClock()
    damaged = DamagedInputs[str](clock=clock)
    damaged.exclude(TOPIC, ["a"])
    for _ in range(5):
        clock.seconds += 10
        damaged.end_pauses_of(TOPIC)
        assert damaged.excluded == set()
        damaged.exclude(TOPIC, ["a"])
        assert damaged.excluded == {"a"}
    clock.seconds += COMPACTION_DAMAGED_SECONDS_FIRST - 51
    assert damaged.end_pauses() == set(), "not sooner either"
    clock.seconds += 1
    assert damaged.end_pauses() == {TOPIC}
    damaged.exclude(TOPIC, ["a"])
    clock.seconds += 2 * COMPACTION_DAMAGED_SECONDS_FIRST - 1
    assert damaged.end_pauses() == set(), "a pause that had run out is doubled"
    clock.seconds += 1
    assert damaged.end_pauses() == {TOPIC}


async def test_a_file_that_is_gone_is_left_out_and_tried_again_after_a_pause() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES + 1) as (parts, lake):
        key = files_of_log(parts)[FILES]
        right = await store.get(key)
        await store.delete([key])
        with pytest.raises(ObjectMissing):
            await file_compactor(parts, store, lake)._compact_all(TOPIC)
        assert outcomes(parts, "retried") == 1
        compacting = file_compactor(parts, store, lake)
        for _ in range(3):
            await compacting.turn()
            parts.clock.seconds += 5
        assert key in indexed(parts)
        assert len(indexed(parts)) == 2, "the others were merged"
        await store.put(key, [right])
        await small_files(parts, store, lake, count=FILES - 1, first=FILES + 1)
        parts.clock.seconds += COMPACTION_DAMAGED_SECONDS_FIRST
        await compacting.turn()
        assert key not in indexed(parts)
        assert [record.offset for record in await served(parts, store)] == list(range(3 * 2 * FILES))


class DeletingStore(MemoryStore):
    """The topic of an object goes, and the object with it, when it is to be read."""

    parts: Parts | None = None
    key = ""

    async def get(self, key: str) -> bytes:
        if self.parts is not None and key == self.key:
            parts, self.parts = self.parts, None
            await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
            await self.delete([key])
        return await super().get(key)


async def test_a_file_that_the_state_let_go_of_is_not_left_out() -> None:
    """The merge was planned before; the next plan knows nothing of the file."""
    store = DeletingStore()
    async with archived(store) as (parts, lake):
        store.parts, store.key = parts, files_of_log(parts)[0]
        compacting = file_compactor(parts, store, lake)
        with pytest.raises(ObjectMissing):
            await compacting.compact(TOPIC)
        assert compacting._damaged.excluded == set()
