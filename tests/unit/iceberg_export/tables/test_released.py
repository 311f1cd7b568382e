"""Expiry releases exactly what no retained snapshot refers to, each object once."""

import asyncio
import io
import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.tables import commit, manifest_changes, snapshots
from protocol.limits import TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX
from tests.made_tables import MadeTable, data_file

_DELETED = 2


async def reachable(table: MadeTable) -> set[str]:
    """All that the retained snapshots refer to, and the metadata: read without the code that wrote it."""

    def key(uri: str) -> str:
        return uri.removeprefix(f"{table.root}/")

    found = {table.metadata_key}
    for snapshot in json.loads(await table.store.get(table.metadata_key))["snapshots"]:
        found.add(list_key := key(snapshot["manifest-list"]))
        for manifest in fastavro.reader(io.BytesIO(await table.store.get(list_key))):
            assert isinstance(manifest, dict)
            found.add(manifest_key := key(str(manifest["manifest_path"])))
            for entry in fastavro.reader(io.BytesIO(await table.store.get(manifest_key))):
                assert isinstance(entry, dict)
                if entry["status"] != _DELETED:
                    found.add(key(entry["data_file"]["file_path"]))
    return found


Step = tuple[int, list[int]]
"""How many files a commit adds, and which of those in the table, by turns, it drops."""


async def commit_and_check(steps: list[Step]) -> None:
    table = MadeTable()
    serial, live = 0, list[str]()
    for added_count, picks in steps:
        dropped = {live[pick % len(live)] for pick in picks if live}
        added = [data_file(serial + number) for number in range(added_count)]
        serial += added_count
        if not added and not dropped:
            await table.commit(properties={"n": str(serial)})
        else:
            prepared = await table.commit(*added, dropped=dropped)
            await table.store.delete(prepared.table.released)
            live = [key for key in live if key not in dropped] + [file.key for file in added]
        assert await reachable(table) == table.objects
        files = {key for key in table.objects if key.endswith(".parquet")}
        change = await table.upkeep(files)
        assert (frozenset() if change is None else change.dropped) == set(live)
        assert sorted(await table.live_keys()) == sorted(live)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 7), st.lists(st.integers(0, 100), max_size=4)), min_size=10, max_size=30))
def test_the_ledger_refers_to_what_retained_snapshots_need_and_to_nothing_else(steps: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "TABLE_SNAPSHOTS_MAX", 3)
        patch.setattr(snapshots, "TABLE_SNAPSHOTS_EXPIRED_AT_ONCE", 2)
        patch.setattr(manifest_changes, "TABLE_MANIFESTS_PER_LEVEL_MAX", 3)
        patch.setattr(manifest_changes, "TABLE_MANIFEST_FILES_MAX", 10)
        asyncio.run(commit_and_check(steps))


async def test_more_than_an_entry_can_name_is_released_a_snapshot_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TABLE_SNAPSHOTS_MAX", 2)
    monkeypatch.setattr(snapshots, "TABLE_SNAPSHOTS_EXPIRED_AT_ONCE", 4)
    monkeypatch.setattr(commit, "TABLE_RELEASED_PER_COMMIT_MAX", 10)
    table = MadeTable()
    counts, released = list[int](), list[int]()
    for number in range(20):
        files = [data_file(number * 6 + n) for n in range(6)]
        dropped = [data_file(number * 6 - 6 + n).key for n in range(6)] if number else ()
        prepared = await table.commit(*files, dropped=dropped)
        counts.append(len(prepared.metadata.snapshots))
        released.append(len(prepared.table.released))
        assert await reachable(table) == table.objects
    assert max(counts) == 5
    assert set(released[6:]) == {1 + 1 + 2 + 6}  # metadata, a manifest list, manifests, data files


async def test_a_dropped_file_is_released_when_the_last_snapshot_before_its_drop_expires() -> None:
    table = MadeTable()
    await table.commit(data_file(0))
    await table.commit(dropped=[data_file(0).key])
    released = []
    for number in range(1, TABLE_SNAPSHOTS_MAX + TABLE_SNAPSHOTS_EXPIRED_AT_ONCE - 1):
        assert data_file(0).key in table.objects
        released.append((await table.commit(data_file(number))).table.released)
    assert data_file(0).key in released[-1]
    assert sum(key.endswith(".snap.avro") for key in released[-1]) == TABLE_SNAPSHOTS_EXPIRED_AT_ONCE
    assert await reachable(table) == table.objects


async def test_snapshots_expire_by_the_time_at_which_another_one_followed_them() -> None:
    table = MadeTable()
    await table.commit(data_file(0))
    await table.commit(data_file(1))
    dropped_ms = (await table.commit(dropped=[data_file(0).key])).metadata.last_updated_ms
    gone = [data_file(0).key]
    assert await table.upkeep(gone, expires_before_ms=dropped_ms - 1_000) is None
    change = await table.upkeep(gone, expires_before_ms=dropped_ms)
    assert change is not None
    assert not change.dropped
    await table.commit(expires_before_ms=dropped_ms)
    assert data_file(0).key in table.objects  # the snapshot before the drop was current until the drop
    assert await table.upkeep(gone, expires_before_ms=dropped_ms) is None
    prepared = await table.commit(expires_before_ms=dropped_ms + 1)
    assert data_file(0).key in prepared.table.released
    assert len(prepared.metadata.snapshots) == 1
    assert await reachable(table) == table.objects
    assert await table.live_keys() == [data_file(1).key]


async def test_a_drop_may_let_all_that_is_older_expire_with_it() -> None:
    table = MadeTable()
    for number in range(3):
        await table.commit(data_file(number))
    prepared = await table.commit(dropped=[data_file(0).key], expires_before_ms=table.now_ms + 2_000)
    assert len(prepared.metadata.snapshots) == 1
    assert data_file(0).key in prepared.table.released
    assert await reachable(table) == table.objects
