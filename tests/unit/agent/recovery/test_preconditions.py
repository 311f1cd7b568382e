"""A recovery that may not begin raises before it changes anything (safety rule S9)."""

from collections.abc import Awaitable, Callable

import pytest

from agent.bucket.cluster_identity import claim_bucket
from agent.recovery.preconditions import BucketInUse, Permissions
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    LedgerCorrupt,
    LedgerIdentity,
    SessionHeld,
)
from protocol.limits import RECOVERY_WATCH_S
from protocol.types import ObjectNumber, SessionId
from storage.memory_store import MemoryStore
from storage.refs import intake_key
from tests.support.agent.ledger_parts import ManualClock, running_parts
from tests.support.agent.recovery_clusters import (
    ACCEPTING,
    DRY_RUN,
    FORCED,
    TimedStore,
    all_keys,
    lived,
    lived_whole,
    put_intake,
    recover,
)
from tests.support.commands.commands import create


async def test_nothing_happens_while_agents_live() -> None:
    store = TimedStore()
    ledger = await lived(store)
    before = await all_keys(store)
    await ledger.open_session("zombie")
    with pytest.raises(SessionHeld, match="zombie"):
        await recover(ledger, store)
    assert await all_keys(store) == before


class SteppingClock(ManualClock):
    """Others act while somebody sleeps."""

    def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._act = act

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if seconds == RECOVERY_WATCH_S:
            await self._act()


@pytest.mark.parametrize("permissions", [Permissions(), DRY_RUN], ids=["recover", "dry run"])
@pytest.mark.parametrize("is_put", [True, False], ids=["put", "deleted"])
async def test_s9_a_bucket_that_others_use_under_another_ledger_s_name_is_not_recovered(
    permissions: Permissions, *, is_put: bool
) -> None:
    """The ledger's name is mistyped, and the agents of the right one go on."""
    store = TimedStore()
    ledger = await lived(store)
    before = await all_keys(store)

    async def others() -> None:
        if is_put:
            await put_intake(store, SessionId(1), 3, (7, 9))
        else:
            await store.delete([intake_key(SessionId(1), ObjectNumber(0))])

    with pytest.raises(BucketInUse, match=r"intake/.*/CLUSTER, may be mistyped.*--force"):
        await recover(ledger, store, permissions, SteppingClock(others))
    assert len(before ^ await all_keys(store)) == 1
    assert await ledger.identity() == LedgerIdentity(cluster_id="another", incarnation=1)
    await ledger.open_session("a")  # it was not fenced


async def test_who_knows_better_forces_the_recovery_of_a_bucket_that_others_use() -> None:
    store = TimedStore()
    ledger = await lived(store)

    async def others() -> None:
        raise AssertionError("nobody watches")

    report = await recover(ledger, store, FORCED, SteppingClock(others))
    assert report.is_carried_out


async def test_s9_a_ledger_in_use_is_not_recovered_from_another_bucket_of_its_name() -> None:
    store, other = TimedStore(), TimedStore()
    await claim_bucket(other, MemoryLedger(MemoryLedgerCore(cluster_id="mine")), new_bucket_id="two")
    ledger = await lived_whole(store)
    await ledger.claim_bucket("one")
    before = await ledger.head()
    for permissions in (Permissions(), FORCED):
        with pytest.raises(LedgerCorrupt, match="in use with the bucket one, and this is the bucket two"):
            await recover(ledger, other, permissions)
    assert await ledger.head() == before
    await ledger.open_session("a")


async def test_a_bucket_of_no_cluster_is_left_alone() -> None:
    store = MemoryStore()
    with pytest.raises(LedgerCorrupt, match=r"no cluster\.json"):
        await recover(MemoryLedger(), store)
    await store.put("cluster.json", [b"{"])
    with pytest.raises(LedgerCorrupt, match="is damaged"):
        await recover(MemoryLedger(), store)


async def test_the_ledger_of_another_cluster_in_use_is_left_alone() -> None:
    store = TimedStore()
    await lived(store)
    other = MemoryLedger(MemoryLedgerCore(cluster_id="healthy"))
    async with running_parts(other) as parts:
        await parts.ledger.propose(create())
        other.core.expire(parts.ledger.session)
    before = await other.head()
    for permissions in (Permissions(), FORCED, ACCEPTING):
        with pytest.raises(LedgerCorrupt, match="in use by cluster healthy"):
            await recover(other, store, permissions)
    assert (await other.identity(), await other.head()) == (LedgerIdentity(cluster_id="healthy", incarnation=1), before)
