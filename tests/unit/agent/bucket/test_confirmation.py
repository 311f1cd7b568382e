"""No put counts in a bucket that is not the cluster's (safety rule S22)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile
from agent.bucket.confirmation import BucketConfirmation, BucketNotOurs, ConfirmedStore
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerIdentity
from protocol.limits import BUCKET_CONFIRM_INTERVAL_S, BUCKET_CONFIRM_RETRY_S, BUCKET_CONFIRMED_SECONDS_MAX
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import BucketMissing, StoreError, StoreMisconfigured, StoreUnavailable
from tests.support.agent.ledger_parts import ManualClock

MINE = LedgerIdentity(cluster_id="mine", incarnation=2, bucket_id="bucket")
NAMED = msgspec.json.encode(ClusterFile.of(MINE))
OTHERS = (
    LedgerIdentity(cluster_id="other", incarnation=2, bucket_id="bucket"),
    LedgerIdentity(cluster_id="mine", incarnation=3, bucket_id="bucket"),
    LedgerIdentity(cluster_id="mine", incarnation=2, bucket_id="another"),
)


class CountingBucket(MemoryStore):
    """Counts the reads of `cluster.json`; `answer` is what they end with instead of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_count = 0
        self.answer: StoreError | None = None
        self.before_read: Callable[[], None] | None = None

    async def get(self, key: str) -> bytes:
        if key == CLUSTER_KEY:
            self.reads_count += 1
            if self.before_read is not None:
                self.before_read()
            if self.answer is not None:
                raise self.answer
        return await super().get(key)


@dataclass(kw_only=True)
class World:
    clock: ManualClock
    bucket: CountingBucket
    store: ConfirmedStore
    metrics: Metrics

    async def put(self, key: str = "intake/a") -> None:
        await self.store.put(key, [b"x"])

    @property
    def is_mismatch_shown(self) -> bool:
        return self.metrics.registry.get_sample_value("penstock_bucket_mismatch") == 1


@asynccontextmanager
async def worlds() -> AsyncIterator[World]:
    """A bucket that is the cluster's, and an agent's way to it."""
    clock, bucket, metrics = ManualClock(), CountingBucket(), Metrics()
    await bucket.put(CLUSTER_KEY, [NAMED])
    confirmation = BucketConfirmation(store=bucket, identity=MINE, clock=clock, metrics=metrics)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(confirmation.run())
        yield World(clock=clock, bucket=bucket, store=ConfirmedStore(bucket, confirmation), metrics=metrics)
        running.cancel()


async def test_s22_a_put_counts_only_after_the_bucket_was_seen_to_be_the_cluster_s() -> None:
    async with worlds() as world:
        await world.put()
        assert world.bucket.reads_count == 1
        assert await world.bucket.get("intake/a") == b"x"


async def test_while_there_are_puts_the_bucket_is_asked_once_in_an_interval_and_without_them_not_at_all() -> None:
    async with worlds() as world:
        for _ in range(40):
            await world.put()
            await asyncio.sleep(0)
            world.clock.seconds += BUCKET_CONFIRM_INTERVAL_S / 4
        assert world.bucket.reads_count == 10
        world.clock.seconds += 100 * BUCKET_CONFIRM_INTERVAL_S
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.bucket.reads_count == 10


async def test_s22_after_a_pause_the_next_put_waits_for_the_answer() -> None:
    async with worlds() as world:
        await world.put()
        world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX
        await world.bucket.delete([CLUSTER_KEY])
        with pytest.raises(BucketNotOurs, match=r"cluster\.json is not in it"):
            await world.put()


@pytest.mark.parametrize("other", OTHERS)
async def test_s22_a_bucket_that_names_another_cluster_is_refused_within_an_interval(other: LedgerIdentity) -> None:
    async with worlds() as world:
        await world.put()
        await world.bucket.put(CLUSTER_KEY, [msgspec.json.encode(ClusterFile.of(other))])
        world.clock.seconds += BUCKET_CONFIRM_INTERVAL_S
        await world.put()  # beside the read that finds it
        await asyncio.sleep(0)
        with pytest.raises(BucketNotOurs, match=f"belongs to cluster {other.cluster_id}, incarnation"):
            await world.put()


@pytest.mark.parametrize("is_bucket_missing", [False, True])
async def test_s22_nothing_counts_while_the_object_or_the_bucket_is_missing_and_all_does_again_later(
    caplog: pytest.LogCaptureFixture, *, is_bucket_missing: bool
) -> None:
    async with worlds() as world:
        await world.put()
        if is_bucket_missing:
            world.bucket.answer = BucketMissing("NoSuchBucket")
        else:
            await world.bucket.delete([CLUSTER_KEY])
        for _ in range(5):
            world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX
            with pytest.raises(BucketNotOurs):
                await world.put("intake/b")
            assert world.is_mismatch_shown
        world.bucket.answer = None
        await world.bucket.put(CLUSTER_KEY, [NAMED])
        world.clock.seconds += BUCKET_CONFIRM_RETRY_S
        await world.put("intake/c")
        assert not world.is_mismatch_shown
    lines = [record.message for record in caplog.records if "this cluster's" in record.message]
    assert [line.partition(":")[0] for line in lines] == [
        "the bucket is not this cluster's",
        "the bucket is this cluster's again",
    ]


async def test_a_bucket_of_others_is_asked_at_most_once_a_second_and_gets_no_objects() -> None:
    async with worlds() as world:
        await world.bucket.delete([CLUSTER_KEY])
        with pytest.raises(BucketNotOurs):
            await world.put("intake/first")
        reads_count = world.bucket.reads_count
        for number in range(8):
            with pytest.raises(BucketNotOurs):
                await world.put(f"intake/{number}")
            world.clock.seconds += BUCKET_CONFIRM_RETRY_S / 4
        assert world.bucket.reads_count - reads_count in {1, 2}
        assert [meta.key async for meta in world.bucket.list("intake/")] == ["intake/first"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(StoreUnavailable("503"), StoreUnavailable), (StoreMisconfigured("AccessDenied"), StoreMisconfigured)],
)
async def test_s22_a_store_that_does_not_answer_is_believed_for_half_a_minute_and_no_longer(
    answer: StoreError, kind: type[StoreError]
) -> None:
    async with worlds() as world:
        await world.put()
        world.bucket.answer = answer
        world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX - 1
        await world.put()
        world.clock.seconds += 1
        with pytest.raises(kind) as raised:
            await world.put()
        assert not isinstance(raised.value, BucketNotOurs)
        assert not world.is_mismatch_shown
        world.bucket.answer = None
        await world.put()


async def test_s22_a_damaged_cluster_json_confirms_nothing() -> None:
    async with worlds() as world:
        await world.bucket.put(CLUSTER_KEY, [NAMED[:-1]])
        with pytest.raises(StoreMisconfigured, match="damaged"):
            await world.put()


async def test_s20_a_flipped_bit_in_it_is_not_taken_for_another_cluster_s() -> None:
    """The agent goes on by itself once the object can be read, and no put counts before."""
    doubts = 0
    async with worlds() as world:
        for bit in range(len(NAMED) * 8):
            damaged = bytearray(NAMED)
            damaged[bit // 8] ^= 1 << bit % 8
            await world.bucket.put(CLUSTER_KEY, [damaged])
            world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX
            try:
                await world.put()
            except BucketNotOurs:
                raise
            except StoreMisconfigured:
                doubts += 1
            assert not world.is_mismatch_shown
    # But in the names of fields that say nothing of their own; one flip of those makes a control character.
    assert 8 * len(NAMED) - doubts == 8 * len("format_versionchecksum") - 1


async def test_s22_what_counts_is_when_the_read_began_not_when_its_answer_came() -> None:
    async with worlds() as world:

        def slow() -> None:
            world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX
            world.bucket.before_read = None

        world.bucket.before_read = slow
        await world.put()
        assert world.bucket.reads_count == 2


async def test_puts_that_wait_at_the_same_time_share_a_read() -> None:
    async with worlds() as world:
        await asyncio.gather(*(world.put(f"intake/{number}") for number in range(10)))
        assert world.bucket.reads_count <= 2


async def test_a_put_does_not_wait_for_an_agent_that_has_ended() -> None:
    async with worlds() as world:
        await world.put()
    world.clock.seconds += BUCKET_CONFIRMED_SECONDS_MAX
    with pytest.raises(StoreUnavailable, match="the agent is ending"):
        await world.put()


async def test_everything_but_puts_goes_through_as_it_is() -> None:
    async with worlds() as world:
        await world.bucket.put("a", [b"xyz"])
        world.bucket.answer = BucketMissing("NoSuchBucket")
        assert await world.store.get("a") == b"xyz"
        assert await world.store.get_range("a", 1, 1) == b"y"
        assert (await world.store.head("a")).size_bytes == 3
        assert [meta.key async for meta in world.store.list("", after=CLUSTER_KEY)] == []
        assert await world.store.server_time_ms() is None
        await world.store.delete(["a"])
        await world.store.close()
        assert [meta.key async for meta in world.bucket.list("")] == [CLUSTER_KEY]


async def test_a_put_that_fails_is_not_hidden_by_the_confirmation() -> None:
    async with worlds() as world:
        failing = FailingStore(world.bucket)
        world.store._inner = failing
        failing.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        with pytest.raises(StoreUnavailable, match="refused"):
            await world.put()
