"""Ledger and bucket of one cluster, or no agent."""

import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile
from agent.bucket.cluster_identity import AnotherBucket, check_bucket, check_reached, claim_bucket
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerCorrupt, LedgerEntry, LedgerIdentity, LedgerUnavailable
from protocol.types import ObjectNumber, Position, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta
from storage.refs import intake_key, reached_key, snapshot_key
from tests.support.agent.ledger_parts import ledger_at

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


@pytest.mark.parametrize("claim", [b'{"cluster_id":', b'{"cluster_id":"m\xe9ne","incarnation":1,"bucket_id":"b"}'])
async def test_a_claim_that_cannot_be_read_is_no_claim(claim: bytes) -> None:
    store = MemoryStore()
    await store.put(CLUSTER_KEY, [claim])
    with pytest.raises(LedgerCorrupt, match=r"damaged .*docs/operations/bucket"):
        await check_bucket(store, MINE)


async def test_where_the_ledger_knows_its_bucket_a_damaged_claim_is_reported_with_what_it_was() -> None:
    store = MemoryStore()
    mine = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="b")
    await store.put(CLUSTER_KEY, [b'{"cluster_id":"m\xe9ne"}'])
    with pytest.raises(LedgerCorrupt) as caught:
        await check_bucket(store, mine, appends_count=3)
    of_before = '{"cluster_id":"mine","incarnation":1,"format_version":1,"bucket_id":"b"}'
    content = of_before.replace("}", ',"checksum":"65dcd57e00170250"}')
    assert str(caught.value).endswith(content)
    for put_back in (content, of_before):
        await store.put(CLUSTER_KEY, [put_back.encode()])
        assert (await check_bucket(store, mine, appends_count=3)).identity == mine


async def test_where_the_ledger_knows_its_bucket_a_missing_claim_is_named_with_what_it_was() -> None:
    store = MemoryStore()
    mine = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="b")
    with pytest.raises(
        AnotherBucket, match=r"docs/operations/bucket\.md, \"cluster\.json is damaged or missing\""
    ) as caught:
        await check_bucket(store, mine, appends_count=3)
    content = re.search(r"it would be ({.*?})", str(caught.value))
    assert content is not None
    await store.put(CLUSTER_KEY, [content[1].encode()])
    assert (await check_bucket(store, mine, appends_count=3)).identity == mine


async def test_a_name_that_may_be_mistyped_is_told_first_and_only_of_a_ledger_that_is_new() -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    other = LedgerIdentity(cluster_id="other", incarnation=1)
    with pytest.raises(LedgerCorrupt, match=r"^is the ledger's name right\?.*mistyped.*belongs to cluster mine"):
        await check_bucket(store, other)
    for identity, appends_count in ((other, 1), (LedgerIdentity(cluster_id="mine", incarnation=2), 0)):
        with pytest.raises(LedgerCorrupt, match=r"^the bucket belongs to cluster mine"):
            await check_bucket(store, identity, appends_count=appends_count)


class TestClaiming:
    """S9: ledger and bucket name each other, so a ledger has one bucket and a bucket one ledger."""

    @staticmethod
    def agents(count: int) -> list[MemoryLedger]:
        core = MemoryLedgerCore(cluster_id="mine")
        return [MemoryLedger(core) for _ in range(count)]

    async def test_s9_of_two_buckets_that_are_claimed_for_one_new_ledger_the_second_is_refused(self) -> None:
        ledgers, stores = self.agents(2), (MemoryStore(), MemoryStore())
        for ledger, store, name in zip(ledgers, stores, ("one", "two"), strict=True):
            # Both looked before either claimed: so both buckets name the ledger.
            await check_bucket(store, await ledger.identity(), new_bucket_id=name)
        first = await claim_bucket(stores[0], ledgers[0], new_bucket_id="unused")
        assert first == LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="one")
        with pytest.raises(AnotherBucket, match=r"belongs to the bucket one, and this is the bucket two.*same --store"):
            await claim_bucket(stores[1], ledgers[1], new_bucket_id="unused")
        for ledger in ledgers:
            assert await claim_bucket(stores[0], ledger, new_bucket_id="unused") == first

    async def test_s9_a_ledger_that_has_a_bucket_claims_no_other_even_before_its_first_entry(self) -> None:
        (ledger,) = self.agents(1)
        await claim_bucket(MemoryStore(), ledger, new_bucket_id="one")
        empty = MemoryStore()
        with pytest.raises(AnotherBucket, match=r"belongs to the bucket one, and this one has no cluster\.json"):
            await claim_bucket(empty, ledger, new_bucket_id="two")
        assert [meta async for meta in empty.list("")] == []

    async def test_a_claim_that_was_interrupted_is_gone_on_with(self) -> None:
        store, (ledger, again) = MemoryStore(), self.agents(2)
        ledger.is_reachable = False
        await check_bucket(store, await again.identity(), new_bucket_id="one")
        with pytest.raises(LedgerUnavailable):
            await claim_bucket(store, ledger, new_bucket_id="two")
        assert (await claim_bucket(store, again, new_bucket_id="three")).bucket_id == "one"

    async def test_s9_a_copy_of_the_name_in_another_bucket_does_not_pass_for_it(self) -> None:
        store, other, (ledger,) = MemoryStore(), MemoryStore(), self.agents(1)
        await claim_bucket(store, ledger, new_bucket_id="one")
        copy = ClusterFile.of(LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="two"))
        await other.put(CLUSTER_KEY, [msgspec.json.encode(copy)])
        with pytest.raises(AnotherBucket, match="belongs to the bucket one, and this is the bucket two"):
            await claim_bucket(other, ledger, new_bucket_id="three")


class TestReached:
    """S9: a ledger that was further once is an older copy, and its agents would delete what it does not know."""

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
            await check_reached(store, await ledger_at(10))
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
        await check_reached(store, await ledger_at(10))

    async def test_what_comes_while_the_bucket_is_listed_is_no_contradiction(self) -> None:
        ledger = await ledger_at(10)

        class Busy(MemoryStore):
            async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
                session = await ledger.open_session(f"another for {prefix}")
                await ledger.append(session, [LedgerEntry(number=0, payload=b"x")])
                await self.put(intake_key(session, ObjectNumber(0)), [b"x"])
                await self.put(snapshot_key((await ledger.head()).position), [b"x"])
                async for meta in super().list(prefix, after=after):
                    yield meta

        await check_reached(Busy(), ledger)
