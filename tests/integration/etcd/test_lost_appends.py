"""Appends that a member of etcd loses, as it does when its leader hands over: they are sent once more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from coordinator.ledger.etcd import client as etcd_client
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerUnavailable, SnapshotPointer
from protocol.types import Position
from tests.support.ledger.backends import Loss
from tests.support.ledger.losing_member import LosingMember, losing_member
from tests.support.ledger.operations import entries
from tests.support.services.etcd import Etcd

cluster_numbers = count()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "ETCD_REPEAT_SECONDS", 0.3)
    monkeypatch.setattr(etcd_client, "ETCD_CALL_SECONDS_MAX", 3.0)


@asynccontextmanager
async def opened(etcd: Etcd) -> AsyncIterator[tuple[EtcdLedger, LosingMember]]:
    async with losing_member(etcd.endpoints[0]) as member:
        client = EtcdClient(EtcdAccess(endpoints=[member.endpoint]))
        try:
            cluster = f"lost-{next(cluster_numbers)}"
            yield await EtcdLedger.open(client, cluster, new_cluster_id="c", session_seconds=60), member
        finally:
            await client.close()


@pytest.mark.parametrize("loss", list(Loss))
async def test_an_append_that_was_lost_is_there_once(etcd: Etcd, loss: Loss) -> None:
    async with opened(etcd) as (ledger, member):
        session = await ledger.open_session("a")
        first = await ledger.append(session, entries(b"0"))
        member.losses = [loss]
        second = await ledger.append(session, entries(b"1", b"2", first=1))
        third = await ledger.append(session, entries(b"3", first=3))
        records = await ledger.untrimmed_entries()
        assert [(record.number, record.payload) for record in records] == list(enumerate((b"0", b"1", b"2", b"3")))
        assert [record.position for record in records] == [first, second, second, third]


async def test_one_that_is_lost_twice_is_the_callers_to_settle(etcd: Etcd) -> None:
    async with opened(etcd) as (ledger, member):
        session = await ledger.open_session("a")
        member.losses = [Loss.AFTER, Loss.BEFORE]
        with pytest.raises(LedgerUnavailable):
            await ledger.append(session, entries(b"0"))
        position = await ledger.append(session, entries(b"0"))
        assert [record.position for record in await ledger.untrimmed_entries()] == [position]


async def test_what_a_repeat_would_not_settle_is_not_repeated(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pointer that was set, and is set again, looks as if somebody else had set it."""
    monkeypatch.setattr(etcd_client, "ETCD_CALL_SECONDS_MAX", 0.6)
    async with opened(etcd) as (ledger, member):
        session = await ledger.open_session("a")
        position = await ledger.append(session, entries(b"0"))
        pointer = SnapshotPointer(position=Position(position), object_key="s", appends_count=1, digest=b"d")
        member.losses = [Loss.AFTER]
        with pytest.raises(LedgerUnavailable):
            await ledger.set_snapshot(None, pointer)
        assert await ledger.pointer() == pointer
