"""The ledger in etcd while etcd fails: members die and come back, history is compacted, the database is full.

What holds while nothing fails: tests/contract/test_ledger.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import grpc.aio
import pytest
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from coordinator.ledger.etcd import trimming
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.etcd.requests import put
from coordinator.ledger.port import (
    Fenced,
    LedgerCorrupt,
    LedgerEntry,
    LedgerMissing,
    LedgerUnavailable,
    SnapshotPointer,
)
from protocol.types import Position
from tests.support.ledger.etcd_retries import SECONDS_MAX, follow, until_known
from tests.support.services.etcd import Etcd

cluster_numbers = count()


@asynccontextmanager
async def opened(etcd: Etcd, *, session_seconds: int = 60, user: str | None = None) -> AsyncIterator[EtcdLedger]:
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints, user=user, password="secret"))
    name = f"faults-{next(cluster_numbers)}"
    try:
        yield await EtcdLedger.open(client, name, new_cluster_id="c", session_seconds=session_seconds)
    finally:
        await client.close()


def entry(number: int, payload: bytes = b"x") -> list[LedgerEntry]:
    return [LedgerEntry(number=number, payload=payload)]


def pointer(position: Position, appends_count: int) -> SnapshotPointer:
    return SnapshotPointer(position=position, object_key=f"{position}", appends_count=appends_count, digest=b"d")


async def test_a_member_that_dies_and_comes_back_costs_no_entry_and_doubles_none(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        async with opened(etcd) as ledger:
            session = await ledger.open_session("a")
            async with asyncio.TaskGroup() as group:
                following = group.create_task(follow(ledger, Position(0), 59))
                for number in range(60):
                    appending = group.create_task(until_known(partial(ledger.append, session, entry(number))))
                    if number % 20 == 10:
                        await asyncio.to_thread(etcd.members[0].kill)
                        await asyncio.to_thread(etcd.members[0].start, etcd.members)
                    await appending
            assert [record.number for record in following.result()] == [*range(60)]
            assert (await ledger.head()).appends_count == 60


async def test_three_members_lose_one_after_the_other(tmp_path: Path) -> None:
    with Etcd(tmp_path, members_count=3) as etcd:
        async with opened(etcd) as ledger:
            session = await ledger.open_session("a")
            async with asyncio.TaskGroup() as group:
                following = group.create_task(follow(ledger, Position(0), 89))
                for number in range(90):
                    appending = group.create_task(until_known(partial(ledger.append, session, entry(number))))
                    member = etcd.members[number // 30]
                    if number % 30 == 5:
                        await asyncio.to_thread(member.kill)
                    if number % 30 == 25:
                        await asyncio.to_thread(member.start, etcd.members)
                        await asyncio.to_thread(member.wait)
                    await appending
            assert [record.number for record in following.result()] == [*range(90)]
            assert (await ledger.head()).appends_count == 90


async def test_a_reader_is_not_disturbed_by_a_compaction_of_what_it_has_not_read(etcd: Etcd) -> None:
    async with opened(etcd) as ledger:
        session = await ledger.open_session("a")
        first = await ledger.append(session, entry(0))
        last = first
        for number in range(1, 10):
            last = await ledger.append(session, entry(number))
        await EtcdClient(EtcdAccess(endpoints=etcd.endpoints)).compact(last)
        records = await follow(ledger, first, 9)
        assert [record.number for record in records] == [*range(1, 10)]


async def test_a_ledger_that_is_missing_and_is_not_to_be_created(etcd: Etcd) -> None:
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    name = f"faults-{next(cluster_numbers)}"
    try:
        with pytest.raises(LedgerMissing, match=name):
            await EtcdLedger.open(client, name, new_cluster_id=None)
        assert not (await client.range(rpc_pb2.RangeRequest(key=EtcdKeys(name).meta))).kvs
        made = await EtcdLedger.open(client, name, new_cluster_id="c")
        found = await EtcdLedger.open(client, name, new_cluster_id=None)
        assert await found.identity() == await made.identity()
    finally:
        await client.close()


async def test_trimming_lets_etcd_forget(etcd: Etcd) -> None:
    async with opened(etcd) as ledger:
        session = await ledger.open_session("a")
        for number in range(9):
            await ledger.append(session, entry(number))
        last = await ledger.append(session, entry(9))
        assert await ledger.set_snapshot(None, pointer(last, 10))
        await ledger.trim(last)
        await ledger.trim(last)
        start = await ledger.load()
        assert (start.pointer, start.head.appends_count, list(start.records)) == (pointer(last, 10), 10, [])


class DoublingClient(EtcdClient):
    """Keeps its first append on its way a second time, until that is let go."""

    late: rpc_pb2.TxnRequest | None = None
    before_drop: Callable[[], Awaitable[None]] | None = None
    """Comes between a trim's listing and its deleting, once."""
    is_losing = False
    """Whether the next append's answer is lost."""

    async def txn(self, request: rpc_pb2.TxnRequest, *, is_repeatable: bool = False) -> rpc_pb2.TxnResponse:
        is_append = any(b"/ledger/" in part.request_put.key for part in request.success)
        if is_append and self.late is None:
            self.late = request
        if self.before_drop is not None and any(b"/ledger/" in p.request_delete_range.key for p in request.success):
            before_drop, self.before_drop = self.before_drop, None
            await before_drop()
        answer = await super().txn(request, is_repeatable=is_repeatable)
        if is_append and self.is_losing:
            self.is_losing = False
            raise LedgerUnavailable("its answer was lost")
        return answer

    async def let_go(self) -> bool:
        """Whether the copy was carried out."""
        assert self.late is not None
        return (await super().txn(self.late)).succeeded


@asynccontextmanager
async def doubling(etcd: Etcd) -> AsyncIterator[tuple[DoublingClient, EtcdLedger, EtcdLedger]]:
    """A ledger whose first append comes twice, and another agent's connection to it."""
    name = f"faults-{next(cluster_numbers)}"
    client, other = (
        DoublingClient(EtcdAccess(endpoints=etcd.endpoints)),
        EtcdClient(EtcdAccess(endpoints=etcd.endpoints)),
    )
    try:
        yield (
            client,
            await EtcdLedger.open(client, name, new_cluster_id=name),
            await EtcdLedger.open(other, name, new_cluster_id=name),
        )
    finally:
        await client.close()
        await other.close()


async def test_s10_a_copy_that_comes_after_the_trim_stays_until_it_is_trimmed_itself(etcd: Etcd) -> None:
    async with doubling(etcd) as (client, ledger, other):
        session = await ledger.open_session("a")
        first = await ledger.append(session, [LedgerEntry(number=0, payload=b"x"), LedgerEntry(number=1, payload=b"x")])
        second = await ledger.append(session, entry(2))
        assert await ledger.set_snapshot(None, pointer(first, 1))
        await ledger.trim(first)
        assert await client.let_go()
        assert not await client.let_go()
        assert await ledger.set_snapshot(pointer(first, 1), pointer(second, 2))
        await ledger.trim(second)
        for reader in (ledger, other):
            start = await reader.load()
            assert [(row.position, row.number) for row in start.records] == [
                (start.head.position, 0),
                (start.head.position, 1),
            ]
            assert start.head.appends_count == 3
        assert await ledger.append(session, entry(2)) == second
        third = await ledger.append(session, entry(3))
        assert await ledger.set_snapshot(pointer(second, 2), pointer(third, 4))
        await ledger.trim(third)
        start = await other.load()
        assert (list(start.records), start.head.appends_count) == ([], 4)
        assert await client.let_go()
        assert (await other.load()).head.appends_count == 5


async def test_s10_a_copy_that_comes_between_listing_and_dropping_stays(etcd: Etcd) -> None:
    async with doubling(etcd) as (client, ledger, other):
        session = await ledger.open_session("a")
        first = await ledger.append(session, [LedgerEntry(number=0, payload=b"x"), LedgerEntry(number=1, payload=b"x")])
        second = await ledger.append(session, entry(2))
        assert await ledger.set_snapshot(None, pointer(second, 2))

        copies: list[bool] = []

        async def trimmed_by_another() -> None:
            await other.trim(first)
            copies.append(await client.let_go())

        client.before_drop = trimmed_by_another
        await ledger.trim(second)
        assert copies == [True]
        start = await other.load()
        assert [row.number for row in start.records] == [0, 1]
        assert start.head.appends_count == 3


@pytest.mark.parametrize("is_broken_off", [False, True], ids=["between pages", "after a trim that broke off"])
async def test_s10_a_copy_finds_its_group_whole_or_gone_where_a_page_of_the_trim_would_end_within_it(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, *, is_broken_off: bool
) -> None:
    """Else it would append the rest of its group again, which readers reject (safety rule S20)."""
    monkeypatch.setattr(trimming, "ETCD_PAGE_ENTRIES_MAX", 11)
    async with doubling(etcd) as (client, ledger, other):
        before = await other.append(
            await other.open_session("b"), [LedgerEntry(number=row, payload=b"x") for row in range(6)]
        )
        session = await ledger.open_session("a")
        group = [LedgerEntry(number=row, payload=b"x") for row in range(10)]
        first = await ledger.append(session, group)
        assert await ledger.set_snapshot(None, pointer(first, 2))
        copies: list[bool] = []

        async def on_second_page() -> None:
            if is_broken_off:
                raise LedgerUnavailable("broken off")
            copies.append(await client.let_go())

        async def on_first_page() -> None:
            client.before_drop = on_second_page

        client.before_drop = on_first_page
        if is_broken_off:
            with pytest.raises(LedgerUnavailable, match="broken off"):
                await ledger.trim(first)
            copies.append(await client.let_go())
        else:
            await ledger.trim(first)
        assert copies == [False]
        left = await _rows_left(etcd, ledger)
        assert left == ([(first, row) for row in range(10)] if is_broken_off else [])
        await ledger.trim(first)
        assert await _rows_left(etcd, ledger) == []

        assert await client.let_go()
        for reader in (ledger, other):
            start = await reader.load()
            copy = start.head.position
            assert before < first < copy
            assert [(row.position, row.number) for row in start.records] == [(copy, row) for row in range(10)]
            assert start.head.appends_count == 3
        assert await ledger.append(session, group) == first
        assert await ledger.set_snapshot(pointer(first, 2), pointer(copy, 3))
        await other.trim(copy)
        assert await _rows_left(etcd, ledger) == []


async def _rows_left(etcd: Etcd, ledger: EtcdLedger) -> list[tuple[int, int]]:
    """Positions and numbers of all entries that stand in etcd, those that were trimmed in name too."""
    keys = EtcdKeys((await ledger.identity()).cluster_id)
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    try:
        found = await client.range(rpc_pb2.RangeRequest(key=keys.entries, range_end=prefix_end(keys.entries)))
    finally:
        await client.close()
    return [(pair.mod_revision, keys.read_entry(pair.key)[1]) for pair in found.kvs]


async def test_s20_the_pointer_is_read_where_an_entry_cannot_be(etcd: Etcd) -> None:
    async with doubling(etcd) as (client, ledger, _):
        first = await ledger.append(await ledger.open_session("a"), entry(0))
        assert await ledger.set_snapshot(None, pointer(first, 1))
        keys = EtcdKeys((await ledger.identity()).cluster_id)
        await client.txn(rpc_pb2.TxnRequest(success=[put(keys.entries + b"1/1", b"x")]))
        with pytest.raises(LedgerCorrupt, match="is no entry of a ledger"):
            await ledger.load()
        assert await ledger.pointer() == pointer(first, 1)
        await ledger.trim(first)
        with pytest.raises(LedgerCorrupt, match="is no entry of a ledger"):
            await ledger.load()


async def test_s20_a_damaged_key_of_an_entry_that_the_snapshot_covers_ends_no_trim(etcd: Etcd) -> None:
    async with doubling(etcd) as (client, ledger, _):
        session = await ledger.open_session("a")
        await ledger.append(session, entry(0))
        keys = EtcdKeys((await ledger.identity()).cluster_id)
        await client.txn(rpc_pb2.TxnRequest(success=[put(keys.entries_of(session) + b"p" * 16, b"x")]))
        last = await ledger.append(session, entry(1))
        assert await ledger.set_snapshot(None, pointer(last, 2))
        await ledger.trim(last)
        assert await _rows_left(etcd, ledger) == []
        assert (await ledger.load()).head.appends_count == 2


async def test_s10_a_group_whose_answer_was_lost_is_found_beside_a_late_copy(etcd: Etcd) -> None:
    async with doubling(etcd) as (client, ledger, other):
        session = await ledger.open_session("a")
        first = await ledger.append(session, entry(0))
        await ledger.append(session, entry(1))
        assert await ledger.set_snapshot(None, pointer(first, 1))
        await ledger.trim(first)
        client.is_losing = True
        with pytest.raises(LedgerUnavailable):
            await ledger.append(session, entry(2))
        assert await client.let_go()
        await ledger.append(session, entry(3))
        assert [row.number for row in (await other.load()).records] == [1, 2, 0, 3]


async def test_an_agent_that_falls_silent_loses_its_session(etcd: Etcd) -> None:
    async with opened(etcd, session_seconds=1) as ledger:
        session = await ledger.open_session("a")
        async with asyncio.timeout(SECONDS_MAX):
            while not await ledger.is_session_ended("a", session):
                pass
        with pytest.raises(Fenced):
            await ledger.append(session, entry(0))
        assert await ledger.open_session("a") > session


async def test_a_session_that_is_kept_outlives_one_that_is_not(etcd: Etcd) -> None:
    async with opened(etcd, session_seconds=2) as kept, opened(etcd, session_seconds=2) as silent:
        session = await kept.open_session("a")
        ended = await silent.open_session("a")
        async with asyncio.timeout(SECONDS_MAX):
            while not await silent.is_session_ended("a", ended):
                await kept.keep_session(session)
        await kept.append(session, entry(0))
        with pytest.raises(Fenced):
            await silent.keep_session(ended)


async def test_a_full_database_is_named_and_still_read(tmp_path: Path) -> None:
    """The append that was told NOSPACE may stand in the ledger: etcd carries out the transaction that crosses its quota
    and reports the error all the same (`quotaApplierV3.Txn` in its server/etcdserver/apply, v3.6).
    """
    with Etcd(tmp_path, options=["--quota-backend-bytes", str(2 << 20)]) as etcd:
        async with opened(etcd) as ledger:
            session = await ledger.open_session("a")
            number = 0

            async def fill() -> None:
                nonlocal number
                while number < 100:
                    await ledger.append(session, entry(number, bytes(256 << 10)))
                    number += 1

            with pytest.raises(LedgerUnavailable, match="NOSPACE"):
                await fill()
            start = await ledger.load()
            assert [record.number for record in start.records] in ([*range(number)], [*range(number + 1)])


async def test_a_token_that_a_restart_made_void_is_renewed(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        await require_password(etcd)
        with pytest.raises(LedgerUnavailable, match="user and password"):
            async with opened(etcd):
                pass
        async with opened(etcd, user="root") as ledger:
            session = await ledger.open_session("a")
            await ledger.append(session, entry(0))
            await asyncio.to_thread(etcd.members[0].kill)
            await asyncio.to_thread(etcd.members[0].start, etcd.members)
            await until_known(lambda: ledger.append(session, entry(1)))
            assert (await until_known(ledger.head)).appends_count == 2


async def require_password(etcd: Etcd) -> None:
    async with grpc.aio.insecure_channel(etcd.endpoints[0]) as channel:
        auth = rpc_pb2_grpc.AuthStub(channel)
        await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
        await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password="secret"))
        await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
        await auth.AuthEnable(rpc_pb2.AuthEnableRequest())
