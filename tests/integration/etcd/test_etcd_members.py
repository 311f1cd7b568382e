"""Members of an etcd that stand still or lose the others, while agents are connected to them.

Each ledger begins at the member that is named first. What is asserted is that things go on, not how fast.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import ETCD_WATCH_SILENT_SECONDS_MAX
from tests.support.ledger.etcd_retries import SECONDS_MAX, follow, until_known
from tests.support.ledger.operations import START, append_singly, entries
from tests.support.services.etcd import Etcd

SESSION_SECONDS = 60


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members_count=3) as etcd:
        yield etcd


@asynccontextmanager
async def opened(etcd: Etcd, *, first: int, session_seconds: int = SESSION_SECONDS) -> AsyncIterator[EtcdLedger]:
    """A ledger whose client asks member `first`, and then those after it."""
    endpoints = [*etcd.endpoints[first:], *etcd.endpoints[:first]]
    client = EtcdClient(EtcdAccess(endpoints=endpoints))
    try:
        yield await EtcdLedger.open(client, "c", new_cluster_id="c", session_seconds=session_seconds)
    finally:
        await client.close()


async def test_a_reader_that_asks_for_nothing_leaves_a_member_that_stands_still(three: Etcd) -> None:
    """The reader's watch is all that it has: the member's silence is its only sign."""
    async with opened(three, first=0) as reader, opened(three, first=1) as writer, asyncio.TaskGroup() as group:
        session = await writer.open_session("a")
        await append_singly(writer, session, 1)
        async with aclosing(reader.tail(START)) as tail:
            assert len(await anext(tail)) == 1
            three.members[0].stop()
            await until_known(lambda: append_singly(writer, session, 1, first=1))
            with pytest.raises(LedgerUnavailable, match="has fallen silent"):
                await anext(tail)
        following = group.create_task(follow(reader, START, 2))
        await until_known(lambda: writer.append(session, entries(b"2", first=2)))
        assert [record.number for record in await following] == [0, 1, 2]
    assert ETCD_WATCH_SILENT_SECONDS_MAX < SECONDS_MAX


async def test_a_silent_reader_hears_signs_of_life_and_stays(three: Etcd) -> None:
    """etcd has nothing to tell for longer than a watch may be silent."""
    async with opened(three, first=0) as reader, aclosing(reader.tail(START)) as tail:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(ETCD_WATCH_SILENT_SECONDS_MAX * 1.5):
                await anext(tail)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1, 2))])
async def test_a_lease_is_kept_although_its_member_stands_still(three: Etcd, first: int) -> None:
    async with opened(three, first=first, session_seconds=9) as ledger:
        session = await ledger.open_session("a")
        three.members[first].stop()
        await until_known(lambda: ledger.keep_session(session))
        assert not await until_known(lambda: ledger.is_session_ended("a", session))
        await until_known(lambda: append_singly(ledger, session, 1))


async def test_an_agent_starts_although_the_first_member_stands_still_or_is_gone(three: Etcd) -> None:
    three.members[0].stop()
    three.members[1].kill()
    three.members[1].start(three.members)
    client = EtcdClient(EtcdAccess(endpoints=three.endpoints))
    ledger = await until_known(lambda: EtcdLedger.open(client, "c", new_cluster_id="c"))
    await until_known(lambda: ledger.open_session("a"))
    await ledger.close()


async def test_a_member_that_lost_the_others_says_so_to_its_watches(three: Etcd) -> None:
    """It still answers, signs of life too, but nothing that is appended elsewhere would ever reach it."""
    async with opened(three, first=0) as ledger:
        session = await ledger.open_session("a")
        await append_singly(ledger, session, 1)
        async with aclosing(ledger.tail(START)) as tail:
            assert len(await anext(tail)) == 1
            three.members[1].kill()
            three.members[2].kill()
            # gRPC sometimes loses the text of a stream that ends while it is read, and has one of its own.
            with pytest.raises(LedgerUnavailable, match=r"no leader|Internal error from Core"):
                await anext(tail)
        for row in (1, 2):
            three.members[row].start(three.members)
        await until_known(lambda: append_singly(ledger, session, 1, first=1))
        assert [record.number for record in await follow(ledger, START, 1)] == [0, 1]


@pytest.mark.slow  # one at a time above
async def test_members_stand_still_in_turn_while_an_agent_appends_and_reads(three: Etcd) -> None:
    async with opened(three, first=0) as ledger:
        session = await ledger.open_session("a")
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(ledger, START, 59))
            for number in range(60):
                member = three.members[number // 20]
                if number % 20 == 5:
                    member.stop()
                await until_known(partial(ledger.append, session, entries(b"x", first=number)))
                if number % 20 == 15:
                    member.go_on()
        assert [record.number for record in following.result()] == [*range(60)]
        assert (await ledger.head()).appends_count == 60
