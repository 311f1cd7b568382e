"""S10: how full etcd is, who else uses it, and the way out of NOSPACE that docs/operations/etcd.md describes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.etcd.requests import put
from coordinator.ledger.port import LedgerEntry, LedgerUnavailable
from protocol.types import Position, SessionId
from tests.support.ledger.etcd_retries import SECONDS_MAX, until_known
from tests.support.ledger.operations import append_singly, entries, pointer_at
from tests.support.services.etcd import Etcd
from tools import pins

MIB = 1 << 20
QUOTA = 8 * MIB
VERSIONS = pytest.mark.parametrize("version", [pins.ETCD_OLDEST, pins.ETCD])


@asynccontextmanager
async def opened(etcd: Etcd, *, is_compacted: bool = True) -> AsyncIterator[EtcdLedger]:
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    try:
        yield await EtcdLedger.open(
            client, "c", new_cluster_id="c", is_compacted=is_compacted, quota_bytes=QUOTA, session_seconds=600
        )
    finally:
        await client.close()


def small(folder: Path, version: str) -> Etcd:
    return Etcd(folder, version=version, options=["--quota-backend-bytes", str(QUOTA)])


class Filler:
    """Appends to a ledger, and trims it. etcd notes its size when it writes to its disk, a moment later.

    What was not answered may be in the ledger, so it is repeated as it was (safety rule S10).
    """

    def __init__(self, ledger: EtcdLedger, session: SessionId) -> None:
        self.ledger, self.session = ledger, session
        self.appended = 0
        self.position = Position(0)
        self._unanswered: Sequence[LedgerEntry] | None = None

    async def append(self, bytes_count: int = 1) -> None:
        group = self._unanswered or entries(bytes(bytes_count), first=self.appended)
        self._unanswered = group
        self.position = await self.ledger.append(self.session, group)
        self._unanswered = None
        self.appended += 1

    async def until(self, is_reached: Callable[[float], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not is_reached((await self.ledger.size()).pressure):
                await self.append()

    async def trim(self) -> None:
        pointer = pointer_at(self.position, appends_count=self.appended)
        assert await self.ledger.set_snapshot((await self.ledger.load()).pointer, pointer)
        await self.ledger.trim(self.position)


@VERSIONS
async def test_pressure_rises_with_what_is_appended_and_falls_with_a_trim(tmp_path: Path, version: str) -> None:
    """Several times the quota passes through etcd, which never runs full."""
    with small(tmp_path, version) as etcd:
        async with opened(etcd) as ledger:
            filler = Filler(ledger, await ledger.open_session("a"))
            for _ in range(5):
                for _ in range(16):
                    await filler.append(QUOTA // 64)
                await filler.until(lambda pressure: pressure > 1 / 4)
                await filler.trim()
                await filler.until(lambda pressure: pressure < 1 / 8)
            assert (await ledger.head()).appends_count == filler.appended


@VERSIONS
async def test_the_way_out_of_nospace(tmp_path: Path, version: str) -> None:
    """Compact, defragment, disarm; then append again, where it was, and trim."""
    with small(tmp_path, version) as etcd:
        async with opened(etcd) as ledger, grpc.aio.insecure_channel(etcd.endpoints[0]) as channel:
            filler = Filler(ledger, await ledger.open_session("a"))
            history = rpc_pb2_grpc.KVStub(channel)
            for _ in range(6):  # of others, or of a ledger that nobody compacts: only the last one lives
                await history.Put(rpc_pb2.PutRequest(key=b"other", value=bytes(768 << 10)))
            with pytest.raises(LedgerUnavailable, match=r"NOSPACE.*docs/operations/etcd\.md"):
                await fill(filler)
            appended = filler.appended
            assert appended > 0
            revision = (await history.Range(rpc_pb2.RangeRequest(key=b"other"))).header.revision
            await history.Compact(rpc_pb2.CompactionRequest(revision=revision, physical=True))
            maintenance = rpc_pb2_grpc.MaintenanceStub(channel)
            await maintenance.Defragment(rpc_pb2.DefragmentRequest())

            async def disarmed(attempt: Callable[[], Awaitable[None]]) -> None:
                """An append that was refused may raise the alarm once more, a moment later."""
                await disarm(maintenance)
                await attempt()

            await until_known(lambda: disarmed(filler.append))
            assert (await ledger.head()).appends_count == filler.appended == appended + 1
            await until_known(lambda: disarmed(filler.trim))
            assert list((await ledger.load()).records) == []


async def disarm(maintenance: rpc_pb2_grpc.MaintenanceStub) -> None:
    get, deactivate = rpc_pb2.AlarmRequest.GET, rpc_pb2.AlarmRequest.DEACTIVATE
    for alarm in (await maintenance.Alarm(rpc_pb2.AlarmRequest(action=get))).alarms:
        await maintenance.Alarm(rpc_pb2.AlarmRequest(action=deactivate, memberID=alarm.memberID, alarm=alarm.alarm))


async def fill(filler: Filler) -> None:
    """Appends until it is refused. Less than half of the quota lives then, or there would be no way out."""
    for _ in range(14):
        await filler.append(QUOTA // 32)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            await filler.append()


class TestNotices:
    async def test_an_etcd_of_its_own_needs_none(self, tmp_path: Path) -> None:
        with Etcd(tmp_path) as etcd:
            async with opened(etcd) as ledger:
                await append_singly(ledger, await ledger.open_session("a"), 1)
                assert await ledger.notices() == []

    @pytest.mark.parametrize("key", [b"/penstock/b", b"/penstock/c0", b"/registry/pods", b"a"])
    async def test_an_etcd_of_many_loses_its_history_for_all(self, tmp_path: Path, key: bytes) -> None:
        with Etcd(tmp_path) as etcd:
            client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
            await client.txn(rpc_pb2.TxnRequest(success=[put(key, b"x")]))
            await client.close()
            async with opened(etcd) as ledger:
                (notice,) = await ledger.notices()
                assert "other keys than those below /penstock/c/" in notice
                assert "--no-etcd-compaction" in notice

    async def test_who_does_not_compact_is_told_what_etcds_history_shows(self, tmp_path: Path) -> None:
        with Etcd(tmp_path) as etcd:
            async with opened(etcd, is_compacted=False) as ledger:
                session = await ledger.open_session("a")
                position = (await append_singly(ledger, session, 5))[-1]
                (before,) = await ledger.notices()
                assert "--auto-compaction-retention" in before
                assert "None was compacted yet, but there is little" in before
                assert await ledger.set_snapshot(None, pointer_at(position, appends_count=5))
                await ledger.trim(position)
                assert await ledger.notices() == [before], "trimming leaves etcd's history alone"
                client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
                await client.compact(position)
                await client.close()
                (after,) = await ledger.notices()
                assert "History was compacted before" in after
