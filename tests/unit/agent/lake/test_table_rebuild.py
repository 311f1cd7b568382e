"""A table begun anew: its files are those of the log again, whatever became of its metadata, and nothing else stays."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from agent.lake import table_rebuild
from agent.lake.table_commits import TableCommits
from agent.lake.table_rebuild import FileLost, NothingToRebuild, TableRebuild, _Described
from coordinator.commands.commands import DeleteTopic
from coordinator.invariants import check
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.limits import TABLE_REBUILD_TRIES_MAX
from protocol.types import TopicId
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from tests.support.agent.ledger_parts import LAKE_ROOT, Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.compaction import FILES, file_compactor, served, small_files
from tests.support.lake.table_files import drop_everything, expire_snapshots, files_of_log, live_files, needed
from tests.support.lake.table_fixtures import run_here


@asynccontextmanager
async def archived(
    store: MemoryStore, *, count: int = 3, root: str = LAKE_ROOT
) -> AsyncIterator[tuple[Parts, TableCommits, TableRebuild]]:
    """A topic of so many files, and who begins its table again, as an agent would that has just started."""
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        before = lake_of(parts, store)
        await small_files(parts, store, before, count=count)
        lake = lake_of(parts, store, root)
        lake._number_next = before._number_next
        yield parts, lake, TableRebuild(ledger=parts.ledger, lake=lake)


def metadata_key(parts: Parts) -> str:
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    return table.metadata_key


async def metadata(parts: Parts, store: MemoryStore, root: str = LAKE_ROOT) -> TableMetadata:
    return await TableReader(root=root, store=store, cache=TableCache(), run_in_thread=run_here).metadata(
        metadata_key(parts)
    )


class Interrupted(Exception):
    """The agent goes."""


class OnlyOnce:
    """Describes files for one entry, and no other: each asks for it before its turn, and in it."""

    def __init__(self, describe: Callable[[TopicId, dict[str, _Described]], Awaitable[None]]) -> None:
        self._describe = describe
        self._times_left = 2

    async def __call__(self, topic_id: TopicId, described: dict[str, _Described]) -> None:
        self._times_left -= 1
        if self._times_left < 0:
            raise Interrupted
        await self._describe(topic_id, described)


async def test_a_damaged_table_holds_the_files_of_its_log_again_and_passes_go_on() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake, rebuild):
        files, records = files_of_log(parts), await served(parts, store)
        await store.put(metadata_key(parts), (b"junk",))
        await produce(parts, store, 3)
        with pytest.raises(TableUnreadable):
            await archiver(parts, store, lake).archive_topic(TOPIC)
        rebuilt = await rebuild.rebuild(TOPIC)
        assert (rebuilt.files, rebuilt.records, rebuilt.version) == (3, 9, 4)
        assert [live.file.key for live in await live_files(parts, store)] == files
        assert check(parts.ledger.state) == []
        assert len(needed(parts)) == 3 + len(("metadata", "list", "manifest"))
        assert await served(parts, store) == records
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert [live.file.key for live in await live_files(parts, store)] == files_of_log(parts)
        assert len(files_of_log(parts)) == 4
        assert [one.summary["total-records"] for one in (await metadata(parts, store)).snapshots] == ["9", "12"]


@pytest.mark.parametrize("suffix", [".metadata.json", ".avro"])
async def test_it_does_not_matter_which_of_its_metadata_is_gone(suffix: str) -> None:
    store = MemoryStore()
    async with archived(store) as (parts, _, rebuild):
        await store.delete([key for key in needed(parts) if key.endswith(suffix)])
        await rebuild.rebuild(TOPIC)
        assert [live.file.key for live in await live_files(parts, store)] == files_of_log(parts)


async def test_what_only_older_snapshots_held_goes() -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake, rebuild):
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        assert len(files_of_log(parts)) == FILES + 1
        rebuilt = await rebuild.rebuild(TOPIC)
        assert files_of_log(parts) == [merged.file.key]
        assert (rebuilt.files, rebuilt.records) == (1, 3 * FILES)
        assert check(parts.ledger.state) == []


async def test_a_table_whose_log_has_no_file_left_is_empty() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake, rebuild):
        await drop_everything(parts)
        rebuilt = await rebuild.rebuild(TOPIC)
        assert (rebuilt.files, rebuilt.records) == (0, 0)
        assert (await metadata(parts, store)).snapshots == ()
        assert needed(parts) == {metadata_key(parts)}
        assert await expire_snapshots(parts, lake).update_table(TOPIC) == 0
        await small_files(parts, store, lake, count=1, first=3)
        assert len(await live_files(parts, store)) == 1


async def test_what_one_entry_cannot_name_goes_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rebuild, "TABLE_RELEASED_PER_COMMIT_MAX", 4)
    store = MemoryStore()
    async with archived(store) as (parts, _, rebuild):
        old = {key for key in needed(parts) if key not in files_of_log(parts)}
        rebuilt = await rebuild.rebuild(TOPIC)
        assert rebuilt.version > 4, "several entries"
        assert len(needed(parts)) == 3 + 3
        assert not old & needed(parts)
        assert check(parts.ledger.state) == []


async def test_where_nobody_goes_on_after_the_first_entry_upkeep_lets_go_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    async with archived(store, count=FILES) as (parts, lake, rebuild):
        await file_compactor(parts, store, lake).compact(TOPIC)
        before = len(needed(parts))
        metadata_count = sum("/metadata/" in key for key in needed(parts))
        monkeypatch.setattr(table_rebuild, "TABLE_RELEASED_PER_COMMIT_MAX", metadata_count)
        monkeypatch.setattr(rebuild, "_describe", OnlyOnce(rebuild._describe))
        with pytest.raises(Interrupted):
            await rebuild.rebuild(TOPIC)
        assert len(needed(parts)) == before - metadata_count + len(("metadata", "list", "manifest"))
        keeping = expire_snapshots(parts, lake)
        await parts.clock.sleep(3_600)
        await keeping.update_table(TOPIC)
        assert needed(parts) == {
            *files_of_log(parts),
            *(key for key in needed(parts) if "/metadata/" in key),
        }
        assert len(needed(parts)) == len(files_of_log(parts)) + len(("metadata", "list", "manifest"))
        assert check(parts.ledger.state) == []


async def test_a_bucket_that_moved_has_tables_again_that_name_their_files() -> None:
    store, moved = MemoryStore(), "s3://elsewhere/lake"
    async with archived(store, root=moved) as (parts, lake, rebuild):
        await produce(parts, store, 3)
        await rebuild.rebuild(TOPIC)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        found = await metadata(parts, store, moved)
        assert found.location.startswith(f"{moved}/lake/")
        reader = TableReader(root=moved, store=store, cache=TableCache(), run_in_thread=run_here)
        assert [live.file.key for live in await reader.live_files(found)] == files_of_log(parts)


class Interfering(TableCommits):
    """Others commit to the table while this agent prepares it."""

    between: Callable[[], Awaitable[None]] | None = None
    times = 1

    async def prepare_again(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        prepared = await super().prepare_again(*args, **kwargs)  # type: ignore[arg-type]
        if self.between is not None and self.times:
            self.times -= 1
            await self.between()
        return prepared


@pytest.mark.parametrize("times", [1, TABLE_REBUILD_TRIES_MAX])
async def test_a_commit_of_another_agent_in_between_is_not_lost(times: int) -> None:
    store = MemoryStore()
    async with archived(store) as (parts, lake, rebuild):
        numbers = iter(range(3, 3 + times))
        other = lake_of(parts, store)
        other._number_next = 1_000

        async def commit() -> None:
            await small_files(parts, store, other, count=1, first=next(numbers))

        lake.__class__ = Interfering
        assert isinstance(lake, Interfering)
        lake.between, lake.times = commit, times
        if times == TABLE_REBUILD_TRIES_MAX:
            with pytest.raises(StoreUnavailable, match="try again"):
                await rebuild.rebuild(TOPIC)
        else:
            assert (await rebuild.rebuild(TOPIC)).files == 4
        assert [live.file.key for live in await live_files(parts, store)] == files_of_log(parts)
        assert check(parts.ledger.state) == []


async def test_a_file_of_the_log_that_is_gone_or_damaged_changes_nothing() -> None:
    store = MemoryStore()
    async with archived(store) as (parts, _, rebuild):
        pointer, (first, *_) = metadata_key(parts), files_of_log(parts)
        await store.put(first, (b"junk" * 20,))
        with pytest.raises(FileLost, match=f"{first} of the log is missing or damaged: .*Parquet"):
            await rebuild.rebuild(TOPIC)
        await store.delete([first])
        with pytest.raises(FileLost, match=f"{first} of the log is missing or damaged: .*does not exist"):
            await rebuild.rebuild(TOPIC)
        assert metadata_key(parts) == pointer


async def test_where_there_is_no_table_nothing_is_begun() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        rebuild = TableRebuild(ledger=parts.ledger, lake=lake_of(parts, store))
        with pytest.raises(NothingToRebuild, match="has no table yet"):
            await rebuild.rebuild(TOPIC)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        with pytest.raises(NothingToRebuild, match="was deleted"):
            await rebuild.rebuild(TOPIC)
