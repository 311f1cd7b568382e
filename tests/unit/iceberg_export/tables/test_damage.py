"""A table of which one bit is flipped: whatever reads it or commits on top raises `StoreError`, never anything else.

Safety rule S20. Anything else would end the agent, as it is no error of the environment to `agent.runtime.supervisor`.
"""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec import structs

from iceberg_export.tables.avro_files import CHECKSUM, decode_rows
from iceberg_export.tables.commit import Change
from iceberg_export.tables.manifests import decode_manifest, decode_manifest_list, encode_manifest_list
from iceberg_export.tables.metadata import TableUnreadable, decode
from protocol.decoding import Undecodable
from storage.memory_store import MemoryStore
from storage.object_store import StoreError
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX, METADATA_SUFFIX
from tests.golden import golden_bytes
from tests.support.lake.table_fixtures import MadeTable, as_before, data_file, setting

FLIPS = 250


SUFFIXES = [METADATA_SUFFIX, MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX]


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << (bit % 8)]) + data[bit // 8 + 1 :]


def flipped(data: bytes) -> Iterator[bytes]:
    """Copies of the bytes with one bit flipped each, all over them."""
    for number in range(FLIPS):
        yield flip(data, number * (len(data) * 8) // FLIPS)


def newest(table: MadeTable, suffix: str) -> str:
    return max(key for key in table.objects if key.endswith(suffix))


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
        await table.expire_snapshots([data_file(2).key], expires_before_ms=table.now_ms)
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_one_flipped_bit_is_never_believed(suffix: str) -> None:
    """Every bit of an object: it is refused, or says what it said, as where its checksum goes by another name."""
    table = await made_table()
    key, data = newest(table, suffix), await table.store.get(newest(table, suffix))
    metadata = await table.reader.metadata(table.metadata_key)
    rows = {row.key: row for row in await table.reader.manifests(metadata.snapshots[-1])}

    def read(changed: bytes) -> object:
        if suffix == METADATA_SUFFIX:
            decoded = decode(changed, key)
            own = {name: decoded.properties[name] for name in metadata.properties}
            return structs.replace(decoded, properties=own)
        if suffix == MANIFEST_LIST_SUFFIX:
            return decode_manifest_list(changed, key=key, root=table.root)
        return decode_manifest(changed, rows[key], root=table.root)

    right, believed = read(data), 0
    assert right
    for bit in range(len(data) * 8):
        try:
            assert read(flip(data, bit)) == right, bit
        except TableUnreadable:
            continue
        believed += 1
    names = f"{CHECKSUM}{key.rpartition('/')[2]}" if suffix == METADATA_SUFFIX else CHECKSUM
    assert believed <= 8 * len(names), "bits of the names of the checksum and of the object"


async def test_an_intact_object_in_the_place_of_another_is_refused() -> None:
    table = await made_table()
    older = table.metadata_key, await table.store.get(table.metadata_key)
    await table.commit(data_file(5))
    with pytest.raises(TableUnreadable, match="is a copy of the table metadata"):
        decode(older[1], table.metadata_key)
    for suffix in (MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX):
        key, *others = sorted(each for each in table.objects if each.endswith(suffix))
        data = await table.store.get(key)
        assert decode_rows(data, key)
        with pytest.raises(Undecodable, match="or another object's"):
            decode_rows(data, others[-1])


async def test_what_a_program_of_before_carried_on_is_no_checksum() -> None:
    """It takes the property over from the metadata before, and may live beside a newer one."""
    table = await made_table()
    data = await table.store.get(table.metadata_key)
    changed = data.replace(b'"comment":"caf', b'"comment":"tea')
    assert changed != data
    after = table.next_key(METADATA_SUFFIX)
    assert decode(changed, after).properties["comment"].startswith("tea")
    with pytest.raises(TableUnreadable, match="it is damaged"):
        decode(changed, table.metadata_key)
    with pytest.raises(TableUnreadable, match="it is damaged"):
        decode(changed)


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_one_flipped_bit_of_before_is_an_error_of_the_store_or_none(suffix: str) -> None:
    table = await made_table()
    assert await works_or_is_refused(table)
    key = newest(table, suffix)
    refused = 0
    for data in flipped(as_before(await table.store.get(key))):
        refused += not await works_or_is_refused(await damaged(table, key, data))
        await asyncio.sleep(0)
    assert refused > FLIPS // 3


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'"caf\xc3\xa9"', b'"caf\xc3\xc9"', "cannot read the table metadata"),
        (b'"added-records":"10"', b'"added-records":"1p"', "added-records='1p'"),
        (b'"sequence-number":2', b'"sequence-number":1', "not ascending"),
        (b'"last-sequence-number":3', b'"last-sequence-number":2', "not ascending"),
        (b'"current-schema-id":0', b'"current-schema-id":1', "schemas that do not exist"),
        (b'"schema-id":0,"fields"', b'"schema-it":0,"fields"', "cannot be read"),
        (b'"schema-id":0,"fields"', b'"schema-id":0,"fieles"', "cannot be read"),
        (b'"name":"partition"', b'"name":"partitioo"', "a column that every table has"),
        (b'"transform":"identity"', b'"transform":"identitx"', "not as Penstock writes it"),
        (b'"null-order":"nulls-first"', b'"null-order":"nulls\xadfirst"', "cannot be read"),
    ],
)
async def test_metadata_of_before_that_contradicts_itself_is_refused(before: bytes, after: bytes, words: str) -> None:
    table = await made_table()
    data = as_before(await table.store.get(table.metadata_key))
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
    data = as_before(await table.store.get(table.metadata_key)).decode()
    ids = [str(snapshot.snapshot_id) for snapshot in decode(data.encode()).snapshots]
    with pytest.raises(TableUnreadable, match="two snapshots have the same id"):
        decode(data.replace(f'"snapshot-id":{ids[0]},"sequence', f'"snapshot-id":{ids[1]},"sequence').encode())
    name = f'"main":{{"snapshot-id":{ids[2]}'
    assert name in data
    with pytest.raises(TableUnreadable, match="references to snapshots that do not exist"):
        decode(data.replace(name, name[:-1] + ("1" if name[-1] != "1" else "2")).encode())


async def test_a_manifest_list_of_another_snapshot_is_refused() -> None:
    table = await made_table()
    metadata = await table.reader.metadata(table.metadata_key)
    keys = [snapshot.manifest_list.removeprefix(f"{table.root}/") for snapshot in metadata.snapshots]
    copy = await damaged(table, keys[-1], as_before(await table.store.get(keys[-2])))
    with pytest.raises(TableUnreadable, match=r"is of the snapshot .*, expected"):
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
    with pytest.raises(TableUnreadable, match=r"has total-data-files 0, but its snapshot.s summary says 3"):
        await copy.reader.manifests(current)


async def test_a_manifest_in_the_place_of_another_is_refused() -> None:
    table = MadeTable()
    for number in (1, 2):
        await table.commit(data_file(number))
    metadata = await table.reader.metadata(table.metadata_key)
    one, other = await table.reader.manifests(metadata.snapshots[-1])
    copy = await damaged(table, one.key, as_before(await table.store.get(other.key)))
    with pytest.raises(TableUnreadable, match="another snapshot"):
        await copy.reader.entries(one)


async def test_what_was_written_before_there_were_checksums_is_read_as_it_is() -> None:
    """Golden files: the newest objects of the table that `made_table` makes."""
    table, before = await made_table(), MemoryStore()
    metadata = await table.reader.metadata(table.metadata_key)
    keys = {suffix: newest(table, suffix) for suffix in SUFFIXES}
    names = {METADATA_SUFFIX: "metadata", MANIFEST_LIST_SUFFIX: "manifest_list", MANIFEST_SUFFIX: "manifest"}
    for suffix, key in keys.items():
        await before.put(key, [golden_bytes(f"tables/{names[suffix]}")])
    old = MadeTable(store=before)
    assert await old.reader.metadata(keys[METADATA_SUFFIX]) == metadata
    (row, *_), (old_row, *_) = [
        sorted(await each.reader.manifests(metadata.snapshots[-1]), key=lambda row: row.key, reverse=True)
        for each in (table, old)
    ]
    assert old_row.key == row.key
    assert await old.reader.entries(old_row) == await table.reader.entries(row)
