"""S9: a running agent goes on checking whose its bucket is."""

import asyncio
from collections.abc import Callable

import pytest

from agent.bucket.bucket_watch import BucketWatch
from agent.bucket.cluster_file import CLUSTER_KEY
from agent.bucket.cluster_identity import AnotherBucket, check_bucket
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerIdentity
from protocol.limits import BUCKET_CHECK_INTERVAL_S
from protocol.types import Position
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from storage.refs import reached_key
from tests.support.agent.ledger_parts import ManualClock, ledger_at


class TestAnAgentThatRuns:
    """S9: it goes on looking whose its bucket is."""

    IDENTITY = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="one")

    async def claimed(self) -> tuple[MemoryStore, BucketWatch]:
        store = MemoryStore()
        await check_bucket(store, LedgerIdentity(cluster_id="mine", incarnation=1), new_bucket_id="one")
        return store, self.watch(store)

    def watch(
        self,
        store: ObjectStore,
        *,
        ledger: Ledger | None = None,
        position: Callable[[], Position] = lambda: Position(0),
        clock: ManualClock | None = None,
    ) -> BucketWatch:
        return BucketWatch(
            store=store,
            ledger=MemoryLedger() if ledger is None else ledger,
            identity=self.IDENTITY,
            position=position,
            clock=ManualClock() if clock is None else clock,
        )

    async def test_s9_an_agent_that_had_not_read_past_the_backup_ends_when_it_goes_on(self) -> None:
        """The ledger that it reads was restored, and holds all that this agent has seen: only the bucket knows."""
        store, _ = await self.claimed()
        await store.put(reached_key(Position(9)), [b"x"])
        positions = iter((3, 3, 3, 4))
        watch = self.watch(store, ledger=await ledger_at(4), position=lambda: Position(next(positions)))
        with pytest.raises(LedgerCorrupt, match="older copy"):
            await watch.run()
        assert list(positions) == []  # as long as nothing came, one look at the name was enough
        with pytest.raises(LedgerCorrupt, match="older copy"):
            await watch.is_ours()

    async def test_its_own_bucket(self) -> None:
        _, name = await self.claimed()
        assert await name.is_ours()

    @pytest.mark.parametrize(
        "other",
        [
            b'{"cluster_id":"mine","incarnation":2,"bucket_id":"one"}',
            b'{"cluster_id":"other","incarnation":1,"bucket_id":"one"}',
            b'{"cluster_id":"mine","incarnation":1,"bucket_id":"two"}',
        ],
    )
    async def test_s9_a_bucket_that_was_recovered_under_another_ledger_ends_it(self, other: bytes) -> None:
        store, name = await self.claimed()
        await store.put(CLUSTER_KEY, [other])
        with pytest.raises(AnotherBucket, match=r"recovered under another ledger's name.*docs/operations/recovery"):
            await name.is_ours()
        with pytest.raises(AnotherBucket):
            await name.run()

    @pytest.mark.parametrize("content", [None, b"", b'{"cluster_id":'])
    async def test_s9_where_the_bucket_says_nothing_it_is_told_once_and_nothing_may_be_deleted(
        self, content: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, name = await self.claimed()
        claim = await store.get(CLUSTER_KEY)
        await store.delete([CLUSTER_KEY])
        if content is not None:
            await store.put(CLUSTER_KEY, [content])
        assert [await name.is_ours() for _ in range(3)] == [False, False, False]
        (record,) = caplog.records
        assert "no garbage is deleted" in record.message
        await store.put(CLUSTER_KEY, [record.content.encode()])  # type: ignore[attr-defined]
        assert await name.is_ours()
        assert claim == await store.get(CLUSTER_KEY)

    async def test_a_store_that_is_away_is_asked_again(self) -> None:
        memory, _ = await self.claimed()
        store, clock = FailingStore(memory), ManualClock()
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
        name = self.watch(store, clock=clock)

        async def recovered() -> None:
            while len(clock.slept) < 3:
                await clock.sleep(0)
                clock.slept.remove(0)
            await memory.put(CLUSTER_KEY, [b'{"cluster_id":"mine","incarnation":2}'])

        async def both() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recovered())
                tasks.create_task(name.run())

        with pytest.raises(ExceptionGroup) as raised:
            await both()
        assert raised.group_contains(AnotherBucket)
        assert set(clock.slept) == {BUCKET_CHECK_INTERVAL_S}
