"""S9: etcd is emptied, restored from a backup, or given another cluster's ledger while an agent has it open.

A backup is a copy of the member's folder, taken while it is not running.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerIdentity, SnapshotPointer, position_first
from protocol.types import Position, SessionId
from tests.support.ledger.etcd_retries import until_known
from tests.support.ledger.operations import append_singly, entries, pointer_at, tailing
from tests.support.services.etcd import Etcd

CLUSTER_ID = "the-cluster"


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


async def open_ledger(etcd: Etcd, *, cluster_id: str = CLUSTER_ID) -> EtcdLedger:
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    return await until_known(lambda: EtcdLedger.open(client, "c", new_cluster_id=cluster_id, session_seconds=600))


@pytest.fixture
async def ledger(own_etcd: Etcd) -> AsyncIterator[EtcdLedger]:
    ledger = await open_ledger(own_etcd)
    yield ledger
    await ledger.close()


def restart_with(etcd: Etcd, folder: Path | None) -> None:
    """Kill etcd, and start it with what the folder holds, or with nothing."""
    member = etcd.members[0]
    member.kill()
    shutil.rmtree(member.data)
    if folder is not None:
        shutil.copytree(folder, member.data)
    member.start(etcd.members)
    member.wait()


def back_up(etcd: Etcd, folder: Path) -> None:
    member = etcd.members[0]
    member.kill()
    shutil.copytree(member.data, folder)
    member.start(etcd.members)
    member.wait()


async def read_one(ledger: Ledger, after: Position) -> None:
    async with tailing(ledger, after) as tail:
        await anext(tail)


async def refuses(attempt: Callable[[], Awaitable[object]], says: str) -> None:
    with pytest.raises(LedgerCorrupt, match=says):
        await until_known(attempt)


async def refuses_everything(ledger: EtcdLedger, session: SessionId, after: Position, says: str) -> None:
    """Each of these must find out for itself: whichever an agent does first."""
    pointer = SnapshotPointer(position=after, object_key="k", appends_count=3, digest=b"d")
    await refuses(lambda: ledger.append(session, entries(b"x", first=3)), says)
    await refuses(lambda: ledger.open_session("another"), says)
    await refuses(lambda: ledger.is_session_ended("a", session), says)
    await refuses(ledger.load, says)
    await refuses(lambda: read_one(ledger, after), says)
    await refuses(lambda: ledger.set_snapshot(None, pointer), says)


async def test_a_wiped_etcd_is_refused_by_whoever_had_it_open(own_etcd: Etcd, ledger: EtcdLedger) -> None:
    session = await ledger.open_session("a")
    after = (await append_singly(ledger, session, 3))[-1]
    await asyncio.to_thread(restart_with, own_etcd, None)
    await refuses_everything(ledger, session, after, "was etcd wiped.*penstock recover")
    await refuses(ledger.head, "was etcd wiped")


async def test_a_wiped_etcd_in_which_another_agent_began_a_cluster_is_refused(
    own_etcd: Etcd, ledger: EtcdLedger
) -> None:
    session = await ledger.open_session("a")
    after = (await append_singly(ledger, session, 3))[-1]
    await asyncio.to_thread(restart_with, own_etcd, None)
    other = await open_ledger(own_etcd, cluster_id="another-cluster")
    await append_singly(other, await other.open_session("b"), 30)  # far beyond what was seen
    await refuses_everything(ledger, session, after, "cluster another-cluster now.*penstock recover")
    await other.close()


async def test_an_etcd_restored_from_a_backup_is_refused(own_etcd: Etcd, ledger: EtcdLedger, tmp_path: Path) -> None:
    session = await ledger.open_session("a")
    await append_singly(ledger, session, 2)
    await asyncio.to_thread(back_up, own_etcd, tmp_path / "backup")
    last = await until_known(lambda: ledger.append(session, entries(b"2", first=2)))
    await asyncio.to_thread(restart_with, own_etcd, tmp_path / "backup")
    await refuses_everything(ledger, session, last, "was etcd wiped, or restored from a backup")
    await refuses(ledger.head, "restored from a backup")


async def test_a_tail_that_was_waiting_is_told_of_a_backup(own_etcd: Etcd, ledger: EtcdLedger, tmp_path: Path) -> None:
    session = await ledger.open_session("a")
    await append_singly(ledger, session, 2)
    await asyncio.to_thread(back_up, own_etcd, tmp_path / "backup")
    last = await until_known(lambda: ledger.append(session, entries(b"2", first=2)))
    async with asyncio.TaskGroup() as group:
        group.create_task(refuses(lambda: read_one(ledger, last), "restored from a backup"))
        await ledger.head()
        await asyncio.to_thread(restart_with, own_etcd, tmp_path / "backup")


async def test_a_backup_in_which_others_went_on_is_refused_although_its_head_is_newer(
    own_etcd: Etcd, ledger: EtcdLedger, tmp_path: Path
) -> None:
    session = await ledger.open_session("a")
    before = (await append_singly(ledger, session, 2))[-1]
    await asyncio.to_thread(back_up, own_etcd, tmp_path / "backup")
    last = await until_known(lambda: ledger.append(session, entries(b"2", first=2)))
    await until_known(lambda: read_one(ledger, before))
    await asyncio.to_thread(restart_with, own_etcd, tmp_path / "backup")
    other = await open_ledger(own_etcd)
    await append_singly(other, await other.open_session("b"), 30)
    assert (await ledger.head()).position > last
    await refuses(lambda: read_one(ledger, last), "is not there any more: was etcd restored from a backup")
    await refuses(ledger.load, "is not there any more")
    await other.close()


async def test_a_recovered_cluster_is_not_the_one_that_an_agent_left_open(own_etcd: Etcd, ledger: EtcdLedger) -> None:
    session = await ledger.open_session("a")
    last = (await append_singly(ledger, session, 3))[-1]
    recovery = await open_ledger(own_etcd)
    async with asyncio.TaskGroup() as group:
        group.create_task(refuses(lambda: read_one(ledger, last), "is being recovered"))
        await ledger.close_session(session)
        identity = LedgerIdentity(cluster_id=CLUSTER_ID, incarnation=2)
        await recovery.fence()
        await recovery.restart(identity, pointer_at(position_first(2), appends_count=0))
    await refuses(lambda: ledger.open_session("a"), "was the cluster recovered")
    await refuses(ledger.load, "was the cluster recovered")
    await recovery.close()
