"""Commits: what they leave in the bucket, what they say to the ledger, and that nothing of a failed one counts."""

import pytest

from iceberg_export.tables.commit import Change
from iceberg_export.tables.manifest_changes import FilesNotInTable
from iceberg_export.tables.metadata import TableUnreadable, decode
from iceberg_export.tables.table_reader import TableCache
from protocol.limits import TABLE_MANIFESTS_PER_LEVEL_MAX, TABLE_SNAPSHOTS_MAX
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from tests.support.lake.table_fixtures import ROWS, MadeTable, data_file, setting


async def test_the_first_commit_replaces_nothing_and_names_all_that_it_put() -> None:
    table = MadeTable()
    prepared = await table.commit(data_file(1), offsets={1: (10, 20)})
    entry = prepared.table
    assert (entry.replaces, entry.released) == ("", ())
    assert entry.data_files == (data_file(1).key,)
    assert [made.key.split(".", 1)[1] for made in entry.added] == ["manifest.avro", "snap.avro"]
    for made in (entry.metadata, *entry.added):
        assert len(await table.store.get(made.key)) == made.object_bytes
    assert await table.store.get(entry.metadata.key) == prepared.metadata_json
    assert decode(prepared.metadata_json) == prepared.metadata


async def test_a_commit_releases_the_metadata_that_it_replaces() -> None:
    table = MadeTable()
    first = await table.commit(data_file(1))
    second = await table.commit(data_file(2))
    assert second.table.replaces == first.table.metadata.key
    assert second.table.released == (first.table.metadata.key,)
    assert await table.live_keys() == [data_file(1).key, data_file(2).key]


async def test_the_same_commit_made_twice_is_the_same_to_the_byte() -> None:
    bytes_of = []
    for cache_bytes in (0, 1 << 20):
        table = MadeTable(cache=TableCache(cache_bytes))
        for number in range(1, 40):
            await table.commit(data_file(number), dropped=[data_file(number - 9).key] if number > 9 else ())
        bytes_of.append({key: await table.store.get(key) for key in table.objects if "/metadata/" in key})
    assert bytes_of[0] == bytes_of[1]


async def test_ids_and_numbers_of_snapshots_follow_each_other() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    metadata = (await table.commit(data_file(2))).metadata
    first, second = metadata.snapshots
    assert (first.sequence_number, second.sequence_number, metadata.last_sequence_number) == (1, 2, 2)
    assert second.parent_snapshot_id == first.snapshot_id != second.snapshot_id
    assert metadata.current_snapshot_id == metadata.refs["main"].snapshot_id == second.snapshot_id
    assert 0 < first.snapshot_id < 1 << 63
    assert [entry.snapshot_id for entry in metadata.snapshot_log] == [first.snapshot_id, second.snapshot_id]


async def test_files_keep_the_number_of_the_commit_that_added_them_through_merges_and_drops() -> None:
    table = MadeTable()
    for number in range(1, 60):
        await table.commit(data_file(number), dropped=[data_file(20).key] if number == 50 else ())
    reader = table.reader
    live = await reader.live_files(await reader.metadata(table.metadata_key))
    expected = {data_file(number).key: number for number in range(1, 60) if number != 20}
    assert {file.file.key: file.sequence_number for file in live} == expected
    assert all(file.file == data_file(file.sequence_number) for file in live)


async def test_manifests_are_merged_before_there_are_many() -> None:
    table = MadeTable()
    reader = table.reader
    for number in range(1, 201):
        prepared = await table.commit(data_file(number))
        assert sum(made.key.endswith(".manifest.avro") for made in prepared.table.added) == 1
        manifests = await reader.manifests(prepared.metadata.snapshots[-1])
        assert len(manifests) < 2 * TABLE_MANIFESTS_PER_LEVEL_MAX
        assert sum(manifest.live_files for manifest in manifests) == number
        assert sum(manifest.added_files for manifest in manifests if manifest.sequence_number == number) == 1
    assert len(await table.live_keys()) == 200


async def test_a_commit_that_drops_files_is_a_replace_that_adds_up() -> None:
    table = MadeTable()
    await table.commit(data_file(1), data_file(2), data_file(3))
    prepared = await table.commit(data_file(4), dropped=[data_file(1).key, data_file(3).key])
    summary = prepared.metadata.snapshots[-1].summary
    assert summary["operation"] == "replace"
    assert (summary["added-data-files"], summary["deleted-data-files"]) == ("1", "2")
    assert (summary["total-data-files"], summary["total-records"]) == ("2", str(2 * ROWS))
    assert sorted(await table.live_keys()) == [data_file(2).key, data_file(4).key]
    assert prepared.table.released == (prepared.table.replaces,)  # the snapshot before it still needs the files


async def test_what_was_deleted_is_reported_once() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    await table.commit(dropped=[data_file(1).key])
    reader = table.reader
    (told,) = await reader.manifests((await reader.metadata(table.metadata_key)).snapshots[-1])
    assert (told.live_files, told.deleted_files) == (0, 1)
    prepared = await table.commit(data_file(2))
    (manifest,) = await reader.manifests(prepared.metadata.snapshots[-1])
    assert (manifest.live_files, manifest.deleted_files) == (1, 0)


async def test_files_that_are_not_there_cannot_be_dropped() -> None:
    table = MadeTable()
    await table.commit(data_file(1), data_file(2))
    with pytest.raises(FilesNotInTable, match="1 of 2 files to drop are not in the table"):
        await table.commit(dropped=[data_file(1).key, data_file(3).key])
    assert await table.live_keys() == [data_file(1).key, data_file(2).key]


async def test_a_commit_of_offsets_alone_is_a_snapshot_without_files() -> None:
    table = MadeTable()
    prepared = await table.commit(offsets={3: (5, 9), 0: (0, 1)})
    assert prepared.metadata.snapshots[-1].summary["penstock.offsets"] == '{"0":[0,1],"3":[5,9]}'
    assert await table.live_keys() == []


async def test_a_commit_of_properties_alone_makes_no_snapshot() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    prepared = await table.commit(edit=setting({"owner": "who"}))
    assert prepared.table.added == ()
    assert len(prepared.metadata.snapshots) == 1
    assert prepared.metadata.properties["owner"] == "who"
    assert prepared.metadata.properties["gc.enabled"] == "false"
    assert await table.live_keys() == [data_file(1).key]


async def test_time_in_a_table_does_not_run_back() -> None:
    table = MadeTable()
    first = await table.commit(data_file(1))
    table.now_ms -= 1_000_000
    second = await table.commit(data_file(2))
    assert second.metadata.last_updated_ms == first.metadata.last_updated_ms


async def test_the_loser_of_a_race_leaves_the_table_as_it_was() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    winner = await table.prepare(Change(added=(data_file(2),)))
    loser = await table.prepare(Change(added=(data_file(3),), dropped=frozenset({data_file(1).key})))
    table.apply(winner)
    assert loser.table.replaces == winner.table.replaces != table.metadata_key
    await table.commit(data_file(4))
    expected = [data_file(1).key, data_file(2).key, data_file(4).key]
    assert await table.live_keys() == expected
    lost = {loser.table.metadata.key, *(made.key for made in loser.table.added)}
    await table.store.delete(sorted(lost))
    assert await table.live_keys() == expected
    assert not lost & (table.objects | table.released)


@pytest.mark.parametrize("suffix", ["5.metadata.json", "6.snap.avro", "7.manifest.avro"])
async def test_a_commit_whose_put_fails_leaves_the_table_as_it_was(suffix: str) -> None:
    table = MadeTable(store=(store := FailingStore(MemoryStore())))
    await table.commit(data_file(1))
    before = table.metadata_key
    next_prefix = table.next_key("")[:-1]
    store.script(InjectedFault(kind=FaultKind.AFTER, operation=StoreOperation.PUT, key_prefix=f"{next_prefix}{suffix}"))
    with pytest.raises(StoreUnavailable):
        await table.commit(data_file(2))
    assert table.metadata_key == before
    assert await table.live_keys() == [data_file(1).key]
    await table.commit(data_file(2))
    assert await table.live_keys() == [data_file(1).key, data_file(2).key]


async def test_metadata_of_another_bucket_is_refused_with_what_to_do() -> None:
    table = MadeTable()
    await table.commit(data_file(1))
    table.root = "s3://elsewhere"
    with pytest.raises(TableUnreadable, match="have another --store for this bucket"):
        await table.commit(data_file(2))


async def test_snapshots_are_kept_up_to_the_limit_and_the_log_with_them() -> None:
    table = MadeTable()
    kept = set()
    for number in range(1, 2 * TABLE_SNAPSHOTS_MAX):
        metadata = (await table.commit(data_file(number))).metadata
        kept.add(len(metadata.snapshots))
        assert [e.snapshot_id for e in metadata.snapshot_log] == [s.snapshot_id for s in metadata.snapshots]
    assert max(kept) < TABLE_SNAPSHOTS_MAX + 16
    assert len(await table.live_keys()) == 2 * TABLE_SNAPSHOTS_MAX - 1
