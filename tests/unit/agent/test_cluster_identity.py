"""Ledger and bucket of one cluster, or no agent."""

from collections.abc import AsyncIterator

import pytest

from agent.cluster_identity import CLUSTER_KEY, check_bucket, check_reached
from coordinator.log import Entry, LedgerCorrupt, LedgerIdentity
from coordinator.memory_log import MemoryLedger
from protocol.types import ObjectNumber, Position, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta
from storage.refs import intake_key, reached_key, snapshot_key

MINE = LedgerIdentity(cluster_id="mine", incarnation=1)


async def test_a_new_ledger_claims_an_empty_bucket_once() -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    claim = await store.get(CLUSTER_KEY)
    assert b'"cluster_id":"mine"' in claim
    await check_bucket(store, MINE)
    await check_bucket(store, MINE, appends_count=7)
    assert await store.get(CLUSTER_KEY) == claim


@pytest.mark.parametrize(
    "other", [LedgerIdentity(cluster_id="other", incarnation=1), LedgerIdentity(cluster_id="mine", incarnation=2)]
)
@pytest.mark.parametrize("appends_count", [0, 1])
async def test_a_bucket_of_another_cluster_or_incarnation_is_refused_and_left_alone(
    other: LedgerIdentity, appends_count: int
) -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    claim = await store.get(CLUSTER_KEY)
    with pytest.raises(LedgerCorrupt, match="the bucket belongs to cluster mine, incarnation 1, but the ledger to"):
        await check_bucket(store, other, appends_count=appends_count)
    assert await store.get(CLUSTER_KEY) == claim


async def test_a_ledger_in_use_does_not_claim_an_empty_bucket() -> None:
    store = MemoryStore()
    with pytest.raises(LedgerCorrupt, match=r"in use, but its bucket has no cluster\.json"):
        await check_bucket(store, MINE, appends_count=1)
    assert [meta async for meta in store.list("")] == []


async def test_a_claim_that_cannot_be_read_is_no_claim() -> None:
    store = MemoryStore()
    await store.put(CLUSTER_KEY, [b'{"cluster_id":'])
    with pytest.raises(LedgerCorrupt, match="cannot be read"):
        await check_bucket(store, MINE)


class TestReached:
    """S9: a ledger that was further once is an older copy, and its agents would delete what it does not know."""

    @staticmethod
    async def ledger_at(position: int) -> MemoryLedger:
        ledger = MemoryLedger()
        session = await ledger.open_session("a")
        for number in range(position - session):
            await ledger.append(session, [Entry(number=number, payload=b"x")])
        assert (await ledger.head()).position == position
        return ledger

    @pytest.mark.parametrize(
        "key",
        [
            snapshot_key(Position(11)),
            reached_key(Position(11)),
            intake_key(SessionId(11), ObjectNumber(0)),
            intake_key(SessionId(1 << 50), ObjectNumber(3)),
        ],
    )
    async def test_s9_a_bucket_that_is_ahead_of_the_ledger_stops_the_start_and_keeps_everything(self, key: str) -> None:
        store = MemoryStore()
        await store.put(key, [b"x"])
        with pytest.raises(LedgerCorrupt, match=rf"(?s){key}.*ends at 10.*penstock recover"):
            await check_reached(store, await self.ledger_at(10))
        assert [meta.key async for meta in store.list("")] == [key]

    async def test_what_the_ledger_has_reached_is_no_contradiction(self) -> None:
        store = MemoryStore()
        for key in (
            snapshot_key(Position(10)),
            snapshot_key(Position(3)),
            reached_key(Position(10)),
            intake_key(SessionId(1), ObjectNumber(1 << 40)),
            intake_key(SessionId(9), ObjectNumber(0)),
            "intake/somebody's",
        ):
            await store.put(key, [b"x"])
        await check_reached(store, await self.ledger_at(10))

    async def test_what_comes_while_the_bucket_is_listed_is_no_contradiction(self) -> None:
        ledger = await self.ledger_at(10)

        class Busy(MemoryStore):
            async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
                session = await ledger.open_session(f"another for {prefix}")
                await ledger.append(session, [Entry(number=0, payload=b"x")])
                await self.put(intake_key(session, ObjectNumber(0)), [b"x"])
                await self.put(snapshot_key((await ledger.head()).position), [b"x"])
                async for meta in super().list(prefix, after=after):
                    yield meta

        await check_reached(Busy(), ledger)
