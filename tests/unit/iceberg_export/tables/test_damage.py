"""A table of which one bit is flipped: whatever reads it or commits on top raises `StoreError`, never anything else.

Safety rule S20. Anything else would end the agent, as it is no error of the environment to `agent.runtime.supervisor`.
"""

import asyncio
from collections.abc import Iterator

import pytest

from iceberg_export.tables.commit import Change
from iceberg_export.tables.manifests import encode_manifest_list
from iceberg_export.tables.metadata import TableUnreadable, decode
from storage.memory_store import MemoryStore
from storage.object_store import StoreError
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX
from tests.support.lake.table_fixtures import MadeTable, data_file, setting

FLIPS = 250


def flipped(data: bytes) -> Iterator[bytes]:
    """Copies of the bytes with one bit flipped each, all over them."""
    for number in range(FLIPS):
        bit = number * (len(data) * 8) // FLIPS
        yield bytes([*data[: bit // 8], data[bit // 8] ^ 1 << (bit % 8), *data[bit // 8 + 1 :]])


async def made_table() -> MadeTable:
    """With four files, of which one has left, a branch's name, and a property of its own."""
    table = MadeTable()
    await table.commit(data_file(1), offsets={1: (10, 20)})
    await table.commit(data_file(2), data_file(3), offsets={2: (20, 30)}, edit=setting({"comment": "caf\xe9"}))
    await table.commit(data_file(4), dropped=[data_file(1).key], offsets={0: (40, 50)})
    return table


async def damaged(table: MadeTable, key: str, data: bytes) -> MadeTable:
    """A copy of the table in which an object holds other bytes."""
    store = MemoryStore()
    async for meta in table.store.list(""):
        await store.put(meta.key, [data if meta.key == key else await table.store.get(meta.key)])
    copy = MadeTable(store=store)
    copy.metadata_key, copy.objects, copy.now_ms = table.metadata_key, set(table.objects), table.now_ms
    for _ in range(100):
        copy.next_key("")
    return copy


async def works_or_is_refused(table: MadeTable) -> bool:
    """Whether all that agents do with a table can be done; what is raised otherwise is a `StoreError`."""
    try:
        metadata = await table.reader.metadata(table.metadata_key)
        await table.reader.live_files(metadata)
        await table.prepare(Change(added=(data_file(9),), offsets={1: (90, 100)}, expires_before_ms=table.now_ms))
        await table.upkeep([data_file(2).key], expires_before_ms=table.now_ms)
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("suffix", ["", MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX])
async def test_one_flipped_bit_is_an_error_of_the_store_or_none(suffix: str) -> None:
    table = await made_table()
    assert await works_or_is_refused(table)
    key = max(key for key in table.objects if key.endswith(suffix)) if suffix else table.metadata_key
    refused = 0
    for data in flipped(await table.store.get(key)):
        refused += not await works_or_is_refused(await damaged(table, key, data))
        await asyncio.sleep(0)
    assert refused > FLIPS // 3


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'"caf\xc3\xa9"', b'"caf\xc3\xc9"', "not table metadata"),
        (b'"added-records":"10"', b'"added-records":"1p"', "added-records='1p'"),
        (b'"sequence-number":2', b'"sequence-number":1', "do not rise"),
        (b'"last-sequence-number":3', b'"last-sequence-number":2', "do not rise"),
        (b'"current-schema-id":0', b'"current-schema-id":1', "schemas that are not there"),
        (b'"schema-id":0,"fields"', b'"schema-it":0,"fields"', "cannot be read"),
        (b'"schema-id":0,"fields"', b'"schema-id":0,"fieles"', "cannot be read"),
        (b'"name":"partition"', b'"name":"partitioo"', "a column that every table has"),
        (b'"transform":"identity"', b'"transform":"identitx"', "none that Penstock writes"),
        (b'"null-order":"nulls-first"', b'"null-order":"nulls\xadfirst"', "cannot be read"),
    ],
)
async def test_metadata_that_contradicts_itself_is_refused(before: bytes, after: bytes, words: str) -> None:
    table = await made_table()
    data = await table.store.get(table.metadata_key)
    assert before in data
    with pytest.raises(TableUnreadable, match=words):
        decode(data.replace(before, after, 1))


async def test_a_reader_names_the_object() -> None:
    table = await made_table()
    data = await table.store.get(table.metadata_key)
    copy = await damaged(table, table.metadata_key, data[1:])
    with pytest.raises(TableUnreadable, match=f"^{table.metadata_key}: "):
        await copy.reader.metadata(table.metadata_key)


async def test_names_and_ids_of_snapshots_are_compared() -> None:
    table = await made_table()
    data = (await table.store.get(table.metadata_key)).decode()
    ids = [str(snapshot.snapshot_id) for snapshot in decode(data.encode()).snapshots]
    with pytest.raises(TableUnreadable, match="two snapshots have one id"):
        decode(data.replace(f'"snapshot-id":{ids[0]},"sequence', f'"snapshot-id":{ids[1]},"sequence').encode())
    name = f'"main":{{"snapshot-id":{ids[2]}'
    assert name in data
    with pytest.raises(TableUnreadable, match="names of snapshots that are not there"):
        decode(data.replace(name, name[:-1] + ("1" if name[-1] != "1" else "2")).encode())


async def test_a_manifest_list_of_another_snapshot_is_refused() -> None:
    table = await made_table()
    metadata = await table.reader.metadata(table.metadata_key)
    keys = [snapshot.manifest_list.removeprefix(f"{table.root}/") for snapshot in metadata.snapshots]
    copy = await damaged(table, keys[-1], await table.store.get(keys[-2]))
    with pytest.raises(TableUnreadable, match="should be of"):
        await copy.reader.manifests(metadata.snapshots[-1])


async def test_a_manifest_list_that_lost_a_row_is_refused() -> None:
    table = await made_table()
    metadata = await table.reader.metadata(table.metadata_key)
    current, key = metadata.snapshots[-1], metadata.snapshots[-1].manifest_list.removeprefix(f"{table.root}/")
    rows = await table.reader.manifests(current)
    shorter = encode_manifest_list(
        [row for row in rows if not row.added_files],
        key=key,
        root=table.root,
        snapshot_id=current.snapshot_id,
        parent_snapshot_id=None,
        sequence_number=3,
    )
    copy = await damaged(table, key, shorter)
    with pytest.raises(TableUnreadable, match="comes to 0 of total-data-files, and its snapshot says 3"):
        await copy.reader.manifests(current)


async def test_a_manifest_in_the_place_of_another_is_refused() -> None:
    table = MadeTable()
    for number in (1, 2):
        await table.commit(data_file(number))
    metadata = await table.reader.metadata(table.metadata_key)
    one, other = await table.reader.manifests(metadata.snapshots[-1])
    copy = await damaged(table, one.key, await table.store.get(other.key))
    with pytest.raises(TableUnreadable, match="another snapshot"):
        await copy.reader.entries(one)
