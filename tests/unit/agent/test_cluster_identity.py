"""Ledger and bucket of one cluster, or no agent."""

import pytest

from agent.cluster_identity import CLUSTER_KEY, check_bucket
from coordinator.log import LedgerCorrupt, LedgerIdentity
from storage.memory_store import MemoryStore

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
