"""Expiry releases exactly what no retained snapshot refers to, each object once."""

import asyncio
import io
import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.tables import commit, manifest_changes, snapshots
from iceberg_export.tables.edits import RemoveSnapshotRef, SetSnapshotRef, TableEdit
from protocol.limits import TABLE_SNAPSHOTS_EXPIRED_AT_ONCE, TABLE_SNAPSHOTS_MAX
from tests.support.lake.table_fixtures import MadeTable, data_file, setting

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


Step = tuple[int, list[int], int | None]
"""How many files a commit adds, which of those in the table, by turns, it drops, and, if any, which snapshot, by turns,
is named before it; where that one has its name already, the name goes."""


async def name_or_not(table: MadeTable, pick: int) -> None:
    metadata = await table.reader.metadata(table.metadata_key)
    if not metadata.snapshots:
        return
    snapshot_id = metadata.snapshots[pick % len(metadata.snapshots)].snapshot_id
    name = str(snapshot_id)
    if name in metadata.refs:
        await table.commit(edit=TableEdit(updates=(RemoveSnapshotRef(ref_name=name),)))
    else:
        await table.commit(
            edit=TableEdit(updates=(SetSnapshotRef(ref_name=name, type="tag", snapshot_id=snapshot_id),))
        )


async def commit_and_check(steps: list[Step]) -> None:
    table = MadeTable()
    serial, live = 0, list[str]()
    for added_count, picks, pick in steps:
        if pick is not None and table.metadata_key:
            await name_or_not(table, pick)
        dropped = {live[pick % len(live)] for pick in picks if live}
        added = [data_file(serial + number) for number in range(added_count)]
        serial += added_count
        if not added and not dropped:
            await table.commit(edit=setting({"n": str(serial)}))
        else:
            prepared = await table.commit(*added, dropped=dropped)
            await table.store.delete(prepared.table.released)
            live = [key for key in live if key not in dropped] + [file.key for file in added]
        assert await reachable(table) == table.objects
        files = {key for key in table.objects if key.endswith(".parquet")}
        change = await table.expire_snapshots(files)
        assert (frozenset() if change is None else change.dropped) == set(live)
        assert sorted(await table.live_keys()) == sorted(live)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.lists(st.integers(0, 100), max_size=4), st.none() | st.integers(0, 5)),
        min_size=10,
        max_size=30,
    )
)
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
    assert await table.expire_snapshots(gone, expires_before_ms=dropped_ms - 1_000) is None
    change = await table.expire_snapshots(gone, expires_before_ms=dropped_ms)
    assert change is not None
    assert not change.dropped
    await table.commit(expires_before_ms=dropped_ms)
    assert data_file(0).key in table.objects  # the snapshot before the drop was current until the drop
    assert await table.expire_snapshots(gone, expires_before_ms=dropped_ms) is None
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


async def test_a_named_snapshot_keeps_what_it_needs_until_its_name_goes() -> None:
    table = MadeTable()
    await table.commit(data_file(0), data_file(1))
    snapshot_id = (await table.reader.metadata(table.metadata_key)).snapshots[0].snapshot_id
    await table.commit(edit=TableEdit(updates=(SetSnapshotRef(ref_name="audit", type="tag", snapshot_id=snapshot_id),)))
    await table.commit(data_file(2), dropped=[data_file(0).key])
    await table.commit(data_file(3), dropped=[data_file(2).key])
    prepared = await table.commit(data_file(4), expires_before_ms=table.now_ms * 2)
    assert len(prepared.metadata.snapshots) == 2
    assert data_file(2).key in table.released, "no snapshot that stays held it"
    assert data_file(0).key in table.objects
    assert await reachable(table) == table.objects
    assert await table.expire_snapshots([data_file(0).key], expires_before_ms=table.now_ms * 2) is None, (
        "it was dropped before"
    )
    await table.commit(edit=TableEdit(updates=(RemoveSnapshotRef(ref_name="audit"),)))
    prepared = await table.commit(expires_before_ms=table.now_ms * 2)
    assert {data_file(0).key} == {key for key in prepared.table.released if key.endswith(".parquet")}
    assert await reachable(table) == table.objects


async def test_a_name_that_is_too_old_lets_its_snapshot_expire() -> None:
    table = MadeTable()
    snapshot_id = (await table.commit(data_file(0))).metadata.snapshots[0].snapshot_id
    named = SetSnapshotRef(ref_name="week", type="tag", snapshot_id=snapshot_id, max_ref_age_ms=10_000)
    await table.commit(edit=TableEdit(updates=(named,)))
    await table.commit(data_file(1), dropped=[data_file(0).key])
    gone, forever_ms = [data_file(0).key], table.now_ms * 2
    assert await table.expire_snapshots(gone, expires_before_ms=forever_ms) is None
    table.now_ms += 10_000
    assert await table.expire_snapshots(gone, expires_before_ms=forever_ms) is not None
    prepared = await table.commit(expires_before_ms=forever_ms)
    assert set(prepared.metadata.refs) == {"main"}
    assert data_file(0).key in prepared.table.released
    assert await reachable(table) == table.objects


async def test_a_name_that_goes_after_years_releases_more_than_an_entry_can_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that a table keeps for a name may grow beyond what an entry can name, or no entry of it fits any more."""
    table = MadeTable()
    await table.commit(*(data_file(number) for number in range(30)))
    snapshot_id = (await table.reader.metadata(table.metadata_key)).snapshots[0].snapshot_id
    named = SetSnapshotRef(ref_name="audit", type="tag", snapshot_id=snapshot_id)
    await table.commit(edit=TableEdit(updates=(named,)))
    await table.commit(data_file(30), dropped=[data_file(number).key for number in range(30)])
    await table.commit(data_file(31), expires_before_ms=table.now_ms * 2)
    await table.commit(edit=TableEdit(updates=(RemoveSnapshotRef(ref_name="audit"),)))
    monkeypatch.setattr(commit, "TABLE_RELEASED_PER_COMMIT_MAX", 10)
    monkeypatch.setattr(commit, "TABLE_FILES_PER_COMMIT_MAX", 7)
    gone = {data_file(number).key for number in range(30)}
    prepared = await table.commit(data_file(32), expires_before_ms=table.now_ms * 2)
    most = [len(prepared.table.released)]
    while (
        change := await table.expire_snapshots(gone & table.objects, expires_before_ms=table.now_ms * 2)
    ) is not None:
        table.apply(prepared := await table.prepare(change))
        most.append(len(prepared.table.released))
    assert max(most) <= 1 + 10
    assert not gone & table.objects
    assert await reachable(table) == table.objects
    assert sorted(await table.live_keys()) == sorted(data_file(number).key for number in (30, 31, 32))
