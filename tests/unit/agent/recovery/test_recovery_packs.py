"""What a recovery does over packs that are damaged: what is intact comes back, and no loss is silent (S9, S20)."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from agent.bucket.cluster_file import CLUSTER_KEY, read_cluster_file
from agent.ledger.bootstrap import load_state
from agent.recovery.preconditions import Permissions
from agent.recovery.report import RecoveryReport
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerCorrupt
from protocol.types import ObjectNumber, PartitionIndex, SessionId
from storage.chunk_format import HEADER_BYTES, ChunkParts, encode_object
from storage.embedded.pack_store import PackStore
from storage.refs import SNAPSHOT_PREFIX, intake_key
from tests.support.agent.recovery_clusters import (
    ACCEPTING,
    DRY_RUN,
    FORCED,
    OTHER,
    lived,
    lived_whole,
    log_end,
    made,
    recover,
    state_of,
    told,
)
from tests.support.commands.commands import TOPIC
from tests.support.packs.pack_files import damage_object, live_objects

DEAD = SessionId(1)
KEY = intake_key(DEAD, ObjectNumber(3))
Opened = Callable[[], AbstractAsyncContextManager[PackStore]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Opens a folder of packs; each object is a second younger than the one before."""
    times, nonces = itertools.count(1_700_000_000_000, 1_000), itertools.count(1)

    @asynccontextmanager
    async def open_packs() -> AsyncIterator[PackStore]:
        store = PackStore(
            tmp_path / ".packs",
            now_ms=lambda: next(times),
            new_nonce=lambda: next(nonces).to_bytes(16),
            is_durable=False,
        )
        try:
            yield store
        finally:
            await store.close()

    return open_packs


async def put_two_chunks(store: PackStore) -> list[int]:
    """An intake object that no entry names, with a chunk of each of two topics; and where these begin."""
    encoded = encode_object(
        DEAD,
        ObjectNumber(3),
        [
            ChunkParts(topic_id=topic_id, partition=PartitionIndex(0), parts=made([(-1, -1)]))
            for topic_id in (TOPIC, OTHER)
        ],
    )
    await store.put(KEY, encoded.parts)
    return encoded.byte_firsts


def flip(folder: Path, key: str, byte: int) -> None:
    """Change one bit of an object's byte, in the pack that has it; counted from the end where negative."""
    bucket = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    stored = live_objects(bucket, {f".packs/{path.name}" for path in (folder / ".packs").iterdir()})[key]
    position = byte if byte >= 0 else stored.payload_bytes + byte
    content = (folder / stored.file).read_bytes()
    damage_object(folder, stored, position, bytes([content[stored.payload_first + position] ^ 1]))


@pytest.mark.parametrize("is_found_at_start", [True, False])
async def test_s20_a_flipped_bit_in_an_intake_object_costs_the_chunk_that_it_hit(
    opened: Opened, tmp_path: Path, *, is_found_at_start: bool
) -> None:
    async with opened() as store:
        ledger = await lived(store)
        _, second = await put_two_chunks(store)
        if not is_found_at_start:
            flip(tmp_path, KEY, second + 70)
            await check_recovered(ledger, store)
    if is_found_at_start:
        flip(tmp_path, KEY, second + 70)
        async with opened() as store:
            await check_recovered(ledger, store)


async def check_recovered(ledger: MemoryLedger, store: PackStore) -> None:
    """The chunk of the first topic comes back, once the loss of the other is accepted."""
    reports: list[RecoveryReport] = [
        await recover(ledger, store, permissions) for permissions in (DRY_RUN, Permissions(), ACCEPTING)
    ]
    assert [report.is_carried_out for report in reports] == [False, False, True]
    for report in reports:
        ((key, fault),) = report.damaged
        assert (key, fault.split(":")[0]) == (KEY, f"partition 0 of topic {OTHER.hex()}")
        assert (told(report), report.objects_committed) == ([("t", 12, 0, 0, 0)], 3)
    state = await state_of(ledger, store)
    assert log_end(state) == 15
    assert OTHER not in state.topics


async def test_an_object_whose_footer_is_damaged_is_reported_and_the_others_come_back(
    opened: Opened, tmp_path: Path
) -> None:
    async with opened() as store:
        ledger = await lived(store)
        await put_two_chunks(store)
        flip(tmp_path, KEY, -20)
        report = await recover(ledger, store, ACCEPTING)
        assert (report.is_carried_out, [key for key, _ in report.damaged]) == (True, [KEY])
        assert "footer" in report.damaged[0][1]
        assert log_end(await state_of(ledger, store)) == 12


async def test_a_flipped_bit_in_an_objects_header_costs_nothing(opened: Opened, tmp_path: Path) -> None:
    async with opened() as store:
        ledger = await lived(store)
        await put_two_chunks(store)
        flip(tmp_path, KEY, HEADER_BYTES - 1)
        report = await recover(ledger, store)
        assert (report.is_carried_out, report.damaged, report.objects_committed) == (True, [], 3)


async def test_an_object_too_small_to_hold_a_chunk_is_reported(opened: Opened, tmp_path: Path) -> None:
    async with opened() as store:
        ledger = await lived(store)
        await store.put(KEY, [b"x" * HEADER_BYTES])
        flip(tmp_path, KEY, 0)
        report = await recover(ledger, store)
        assert (report.is_carried_out, [key for key, _ in report.damaged]) == (False, [KEY])


async def test_s9_a_file_that_may_hold_unlisted_objects_is_a_loss_to_be_accepted(opened: Opened) -> None:
    async with opened() as store:
        ledger = await lived(store)
        unlisted = [("0.pack", "bytes 40 to 80 hold no readable object")]
        refused = await recover(ledger, store, unlisted=unlisted)
        assert (refused.is_carried_out, refused.damaged) == (False, unlisted)
        report = await recover(ledger, store, ACCEPTING, unlisted=unlisted)
        assert (report.is_carried_out, report.damaged) == (True, unlisted)
        assert log_end(await state_of(ledger, store)) == 12


async def test_a_damaged_snapshot_is_reported_and_everything_comes_from_the_intake(
    opened: Opened, tmp_path: Path
) -> None:
    async with opened() as store:
        ledger = await lived_whole(store)
        (key,) = [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]
        flip(tmp_path, key, 30)
        with pytest.raises(LedgerCorrupt, match=f"{key}.*penstock recover"):
            await load_state(ledger, store)
        refused = await recover(ledger, store)
        assert (refused.is_carried_out, [name for name, _ in refused.damaged]) == (False, [key])
        report = await recover(ledger, store, Permissions(is_forced=True, is_loss_accepted=True))
        assert report.is_carried_out
        assert [(topic.records, topic.is_name_lost) for topic in report.topics] == [(12, True)]


async def test_a_damaged_claim_of_the_bucket_is_named(opened: Opened, tmp_path: Path) -> None:
    async with opened() as store:
        ledger = await lived(store)
        flip(tmp_path, CLUSTER_KEY, 3)
        said = f"{CLUSTER_KEY} in the bucket is damaged.*docs/operations/bucket"
        with pytest.raises(LedgerCorrupt, match=said):
            await read_cluster_file(store)
        with pytest.raises(LedgerCorrupt, match=said):
            await recover(ledger, store, FORCED)
