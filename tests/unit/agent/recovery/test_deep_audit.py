"""A deep audit reads every byte of everything that is stored: each object with a changed bit is named, and no other."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from msgspec import UNSET, structs

from agent.bucket.cluster_identity import check_bucket
from agent.maintenance.progress_marks import leave_mark
from agent.recovery.audit import Audit, AuditReport
from agent.recovery.deep_audit import DeepAudit
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.configs.topic_configs import AT_COMMIT, PLACEMENT
from coordinator.state.chunk_index import ChunkIndex
from iceberg_export.tables import commit as table_commit
from iceberg_export.tables.manifests import encode_manifest
from iceberg_export.tables.metadata import CHECKSUM_PROPERTY, TableMetadata, encode
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.records.batch import read_header, set_max_timestamp
from protocol.types import ObjectNumber
from storage.chunk_format import HEADER_BYTES, ChunkParts, encode_object, read_footer
from storage.memory_store import MemoryStore
from storage.object_store import (
    ObjectMeta,
    ObjectRejected,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX, REACHED_PREFIX, VERSION_HINT, version_of_copy
from tests.support.agent.archived_files import archived_file
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.agent.fetch_paths import batch
from tests.support.agent.transactional_paths import Producer, partition_of
from tests.support.lake.checksummed_files import archived
from tests.support.lake.hadoop_copies import copies_of
from tests.support.lake.table_fixtures import run_here


async def audited(paths: DataPaths, said: list[tuple[int, int, int]] | None = None) -> AuditReport:
    await check_bucket(paths.memory, await paths.parts.backend.identity())
    audit = Audit(paths.parts.backend, paths.memory, grace_ms=60_000)
    return await audit.run(
        is_repairing=False, is_deep=True, progress=None if said is None else lambda *seen: said.append(seen)
    )


def damaged(report: AuditReport) -> list[tuple[str, str]]:
    return [(found.what, found.subject) for found in report.disagreements if found.what == "damaged"]


async def flip(paths: DataPaths, key: str, byte: int) -> bytes:
    whole = await paths.memory.get(key)
    changed = bytearray(whole)
    changed[byte] ^= 4
    await paths.memory.put(key, [changed])
    return whole


async def test_what_is_whole_is_read_to_its_last_byte_and_nothing_said() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await archived_file(paths, 0)
        await paths.produce(batch(3))
        said: list[tuple[int, int, int]] = []
        report = await audited(paths, said)
        state = paths.parts.ledger.state
    assert damaged(report) == []
    assert said == [(report.read_objects, report.read_objects, report.read_bytes)]
    assert report.read_objects == len(state.objects) + 1
    assert report.read_bytes >= sum(stored.object_bytes for stored in state.objects.values())


@pytest.mark.parametrize("suffix", [".parquet", ".metadata.json", ".snap.avro", ".manifest.avro"])
async def test_a_changed_byte_of_any_object_of_a_table_is_named(suffix: str) -> None:
    async with data_paths(cache_bytes=0) as paths:
        await archived_file(paths, 0)
        (key,) = [meta.key async for meta in paths.memory.list(LAKE_PREFIX) if _is_of(meta.key, suffix)]
        await flip(paths, key, 0 if suffix.endswith("json") else -1)
        report = await audited(paths)
    assert damaged(report) == [("damaged", key)]


def _is_of(key: str, suffix: str) -> bool:
    return key.endswith(suffix) and not key.rpartition("/")[2].startswith("v")


@pytest.mark.parametrize(
    "change",
    [{"record_count": 4}, {"object_bytes": 1}, {"split_offsets": (5,)}, {"offset_max": 1}, {"partition_max": 1}],
)
async def test_a_manifest_that_says_other_things_of_a_file_is_named(change: dict[str, Any]) -> None:
    """As a program of before wrote it, or carried it on: nothing in it is damaged by itself."""
    async with data_paths(cache_bytes=0) as paths:
        key = await archived_file(paths, 0)
        state = paths.parts.ledger.state
        table = next(iter(state.topics.values())).table
        assert table is not None
        anywhere = TableReader(root="", store=paths.memory, cache=TableCache(), run_in_thread=run_here)
        metadata = await anywhere.metadata(table.metadata_key)
        root = metadata.location.partition("/lake/")[0]
        reader = TableReader(root=root, store=paths.memory, cache=TableCache(), run_in_thread=run_here)
        (row,) = await reader.manifests(metadata.snapshots[-1])
        (entry,) = await reader.entries(row)
        assert entry.file.bounds is not None
        of_bounds = {name: value for name, value in change.items() if hasattr(entry.file.bounds, name)}
        of_file = {name: value for name, value in change.items() if name not in of_bounds}
        file = replace(entry.file, bounds=replace(entry.file.bounds, **of_bounds), **of_file)
        await paths.memory.put(row.key, [encode_manifest([replace(entry, file=file)], key=row.key, root=root)])
        report = await audited(paths)
    assert [found[1] for found in damaged(report)] == [row.key]
    detail = next(found.detail for found in report.disagreements if found.what == "damaged")
    assert (f"its entry of {key} has " in detail) or "record_count" in change


async def test_a_table_that_lacks_a_file_of_the_log_is_named() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await archived_file(paths, 0)
        state = paths.parts.ledger.state
        topic = next(iter(state.topics.values()))
        assert topic.table is not None
        empty = await TableReader(root="", store=paths.memory, cache=TableCache(), run_in_thread=run_here).metadata(
            topic.table.metadata_key
        )
        empty = structs.replace(empty, snapshots=(), refs={}, snapshot_log=(), current_snapshot_id=UNSET)
        await paths.memory.put(topic.table.metadata_key, [encode(empty, topic.table.metadata_key)])
        report = await audited(paths)
    assert damaged(report) == [("damaged", topic.table.metadata_key)]


async def test_a_changed_copy_hint_or_mark_is_named() -> None:
    """What readers without a catalog begin at, and what an agent compares its ledger with."""
    async with data_paths(cache_bytes=0) as paths:
        await archived_file(paths, 0)
        topic_id = next(iter(paths.parts.ledger.state.topics))
        copies = copies_of(paths.parts, paths.memory)
        await copies.copy(topic_id)
        await archived_file(paths, 0)
        await copies.copy(topic_id)
        await leave_mark(paths.memory, paths.parts.ledger.state, paths.parts.clock)
        assert damaged(await audited(paths)) == []
        (mark,) = [meta.key async for meta in paths.memory.list(REACHED_PREFIX)]
        older, newest, hint = [meta.key async for meta in paths.memory.list(LAKE_PREFIX) if _is_for_readers(meta)]
        assert hint.endswith(VERSION_HINT)
        content = await paths.memory.get(newest)
        digit = next(number for number, byte in enumerate(content) if chr(byte) in "0123")
        for key, byte in ((older, 0), (newest, 0), (newest, digit), (hint, 0), (mark, 0), (mark, -2)):
            whole = await flip(paths, key, byte)
            assert damaged(await audited(paths)) == [("damaged", key)], (key, byte)
            await paths.memory.put(key, [whole])


async def test_copies_of_what_agents_of_before_committed_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """While agents are upgraded: those take over the checksum of the metadata before, as they do any property."""
    async with data_paths(cache_bytes=0) as paths:
        copies = copies_of(paths.parts, paths.memory)
        carried = dict[str, str]()

        async def commit_and_copy() -> str:
            await archived_file(paths, 0)
            (topic,) = paths.parts.ledger.state.topics.values()
            await copies.copy(topic.topic_id)
            assert topic.table is not None
            return topic.table.metadata_key

        def as_before(metadata: TableMetadata, _key: str) -> bytes:
            return encode(structs.replace(metadata, properties={**metadata.properties, **carried}))

        first = json.loads(await paths.memory.get(await commit_and_copy()))
        carried[CHECKSUM_PROPERTY] = first["properties"][CHECKSUM_PROPERTY]
        with monkeypatch.context() as patch:
            patch.setattr(table_commit, "encode", as_before)
            await commit_and_copy()
            assert damaged(await audited(paths)) == []
        await commit_and_copy()
        assert damaged(await audited(paths)) == []
        oldest, middle, newest = [
            meta.key async for meta in paths.memory.list(LAKE_PREFIX) if _is_for_readers(meta) and _is_copy(meta)
        ]
        for key in (oldest, newest):
            content = await paths.memory.get(key)
            whole = await flip(paths, key, content.index(b'"last-updated-ms":') + 20)
            assert damaged(await audited(paths)) == [("damaged", key)]
            await paths.memory.put(key, [whole])
        # Without the one before it, no checksum of a copy that was made before says anything for certain.
        await paths.memory.delete([oldest])
        assert damaged(await audited(paths)) == []
        await flip(paths, middle, 0)
        assert damaged(await audited(paths)) == [("damaged", middle)]


def _is_copy(meta: ObjectMeta) -> bool:
    return version_of_copy(meta.key) is not None


def _is_for_readers(meta: ObjectMeta) -> bool:
    return meta.key.rpartition("/")[2].startswith("v")


async def test_a_damaged_file_is_named_with_the_offsets_that_lie_in_it() -> None:
    async with data_paths(partitions=2, cache_bytes=0) as paths:
        first, second = [await archived_file(paths, 1) for _ in range(2)]
        for byte in (4, -9, -100, -12):
            whole = await flip(paths, second, byte)
            report = await audited(paths)
            assert damaged(report) == [("damaged", second)]
            assert report.disagreements[0].detail.endswith("; t-1 offsets 3 to 5")
            await paths.memory.put(second, [whole])
        await paths.memory.put(first, [await paths.memory.get(second)])
        assert ("damaged", first) in damaged(await audited(paths))


async def test_a_file_that_is_cut_ends_no_audit() -> None:
    async with data_paths(cache_bytes=0) as paths:
        first, second = [await archived_file(paths, 0) for _ in range(2)]
        whole = await paths.memory.get(first)
        await flip(paths, second, 4)
        for byte_count in (0, 7, len(whole) - 1):
            await paths.memory.put(first, [whole[:byte_count]])
            assert damaged(await audited(paths)) == [("damaged", first), ("damaged", second)]


class Refusing(MemoryStore):
    """Gives no intake object, and says why."""

    rejection: StoreError = ObjectRejected("Permission denied")

    async def get(self, key: str) -> bytes:
        if key.startswith(INTAKE_PREFIX):
            raise self.rejection
        return await super().get(key)


async def test_an_object_that_is_refused_is_named_and_a_store_that_refuses_ends_the_audit() -> None:
    """A token that has expired meanwhile says nothing of any object."""
    store = Refusing()
    async with data_paths(cache_bytes=0, memory=store) as paths:
        await paths.produce(batch(2), batch(2))
        keys = [meta.key async for meta in store.list(INTAKE_PREFIX)]
        assert damaged(await audited(paths)) == [("damaged", key) for key in keys]
        for rejection in (StoreMisconfigured("ExpiredToken"), StoreDenied("AccessDenied"), StoreUnavailable("503")):
            store.rejection = rejection
            with pytest.raises(type(rejection), match=str(rejection)):
                await audited(paths)


async def test_every_bit_of_an_intake_object_is_looked_at() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(2, size=10))
        (stored,) = [meta async for meta in paths.memory.list(INTAKE_PREFIX)]
        for byte in [0, *range(HEADER_BYTES, stored.size_bytes, 3)]:
            whole = await flip(paths, stored.key, byte)
            assert damaged(await audited(paths)) == [("damaged", stored.key)], byte
            await paths.memory.put(stored.key, [whole])


async def test_objects_that_were_swapped_are_named_and_so_is_an_index_that_means_other_bytes() -> None:
    """Safety rule S20."""
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(2), batch(2))
        keys = [meta.key async for meta in paths.memory.list(INTAKE_PREFIX)]
        contents = [await paths.memory.get(key) for key in keys]
        for key, content in zip(keys, reversed(contents), strict=True):
            await paths.memory.put(key, [content])
        assert damaged(await audited(paths)) == [("damaged", key) for key in keys]
        # As if it was written so: header and footer are right, and the batches are others.
        await paths.memory.put(keys[1], [contents[1]])
        (chunk,) = read_footer(contents[0], len(contents[0]))
        others = bytearray(contents[0][chunk.byte_first : chunk.byte_first + chunk.byte_count])
        set_max_timestamp(others, read_header(others), 77)
        parts = [ChunkParts(chunk.topic_id, chunk.partition, [others])]
        await paths.memory.put(keys[0], encode_object(paths.parts.ledger.session, ObjectNumber(0), parts).parts)
        report = await audited(paths)
        assert damaged(report) == [("damaged", keys[0])]
        assert "in the ledger it is" in report.disagreements[0].detail


async def test_what_waits_for_its_commit_is_compared_with_what_the_ledger_says_of_it() -> None:
    """Safety rule S20. The object is as it might have been written: header, footer and batches are right."""
    async with data_paths(partitions=2, cache_bytes=0) as paths:
        await paths.parts.ledger.propose(
            AlterConfigs(
                resource_type=ConfigResourceType.TOPIC,
                resource_name="t",
                is_whole=False,
                operations=(ConfigOperation(kind=OperationKind.SET, name=PLACEMENT, value=AT_COMMIT),),
            )
        )
        producer = Producer(paths, "x")
        await producer.begin(0, 1)
        await paths.produce(producer.batch(b"one"), partition=1)
        (key,) = [meta.key async for meta in paths.memory.list(INTAKE_PREFIX)]
        assert len(partition_of(paths, 1).index) == 0
        assert damaged(await audited(paths)) == []
        content = await paths.memory.get(key)
        (chunk,) = read_footer(content, len(content))
        others = bytearray(content[chunk.byte_first : chunk.byte_first + chunk.byte_count])
        set_max_timestamp(others, read_header(others), 77)
        parts = [ChunkParts(chunk.topic_id, chunk.partition, [others])]
        await paths.memory.put(key, encode_object(paths.parts.ledger.session, ObjectNumber(0), parts).parts)
        report = await audited(paths)
        await producer.end(is_commit=True)
        committed = await audited(paths)
    assert damaged(report) == damaged(committed) == [("damaged", key)]
    assert "in the ledger it is" in report.disagreements[0].detail
    assert report.disagreements[0].detail.endswith("; t-1 records of open transactions")
    assert committed.disagreements[0].detail.endswith("; t-1 offsets 0 to 0")


async def test_indexes_are_gone_through_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent serves its clients meanwhile, and its indexes may have millions of rows."""
    threads = list[int]()
    rows_of_object = ChunkIndex.rows_of_object

    def noted(index: ChunkIndex, object_id: int, row_first: int = 0) -> list[int]:
        threads.append(threading.get_ident())
        return rows_of_object(index, object_id, row_first)

    async with data_paths(cache_bytes=0) as paths:
        key = await archived_file(paths, 0)
        await paths.produce(batch(2))
        # A file of before, whose rows are compared with the index, and are others.
        older, _ = archived(None)
        await paths.memory.put(key, [older])
        state = paths.parts.ledger.state
        state.objects[state.object_ids[key]].object_bytes = len(older)
        monkeypatch.setattr(ChunkIndex, "rows_of_object", noted)
        audit = DeepAudit(state=state, store=paths.memory)
        await audit.run()
    assert [found.key for found in audit.found] == [key]
    assert len(threads) == 3, "for the intake object, for the file's rows, and for what its damage affects"
    assert threading.get_ident() not in threads
