"""Waiting for the ledger: outcomes, growth, positions and barriers (safety rule S4)."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest

from coordinator.commands.commands import ChunksCommitted, DeleteTopic, QuotaUse, Rejected, ReportTime
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    Head,
    LedgerCorrupt,
    LedgerRecord,
    LedgerUnavailable,
    OutcomeUnknown,
    SnapshotPointer,
    Trimmed,
)
from coordinator.snapshot import digest, encode_with_digest
from protocol.limits import LEDGER_LOAD_ATTEMPTS_MAX, LEDGER_RELOAD_REJECTED_SECONDS
from protocol.types import PartitionIndex, Position, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import (
    BucketMissing,
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
)
from storage.refs import snapshot_key
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, start

PARTITION = (TOPIC, PartitionIndex(0))
SECONDS_MAX = 10.0


class GatedLedger(MemoryLedger):
    """Answers `head` only when the test lets it, with what was true when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[asyncio.Event] = []
        self.is_gated = False

    async def head(self) -> Head:
        head = await super().head()
        if self.is_gated:
            self.asked.append(asyncio.Event())
            await self.asked[-1].wait()
        return head


class DeafLedger(MemoryLedger):
    """What is appended through it arrives, while its tail hears nothing."""

    def __init__(self, core: MemoryLedgerCore) -> None:
        super().__init__(core)
        self.hears = asyncio.Event()
        self.hears.set()
        self.is_trimmed = False

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        while True:
            changed = self.core.changed
            await self.hears.wait()
            if self.is_trimmed:
                raise Trimmed("everything is gone")
            records = self.core.read_after(after)
            if records:
                after = records[-1].position
                yield records
            else:
                await changed.wait()


async def rounds(count: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def produce(parts: Parts, number: int) -> None:
    await parts.ledger.propose(commit(number, Chunk(batches=[Batch()]), session=parts.ledger.session))


async def test_a_barrier_returns_when_what_was_there_is_applied() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, running_parts(ledger, start("b", node=2)) as others:
        await parts.ledger.propose(create())
        await others.ledger.barrier()
        assert others.ledger.state.position >= parts.ledger.state.position


async def test_a_barrier_joins_only_a_request_that_was_not_sent_yet() -> None:
    ledger = GatedLedger()
    async with running_parts(ledger) as parts:
        ledger.is_gated = True
        first = asyncio.ensure_future(parts.ledger.barrier())
        await rounds()
        late = [asyncio.ensure_future(parts.ledger.barrier()) for _ in range(3)]
        await rounds()
        assert len(ledger.asked) == 1
        ledger.asked[0].set()
        await first
        await rounds()
        assert [barrier.done() for barrier in late] == [False, False, False]
        assert len(ledger.asked) == 2  # one request for all that came while the first was on its way
        ledger.asked[1].set()
        await asyncio.gather(*late)


async def test_a_barrier_fails_where_the_ledger_is_away_and_the_next_one_works_again() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        ledger.is_reachable = False
        with pytest.raises(LedgerUnavailable):
            await parts.ledger.barrier()
        ledger.is_reachable = True
        await parts.ledger.barrier()


async def test_whoever_watches_a_partition_is_woken_when_it_grows() -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        growth = parts.ledger.watch([PARTITION, (TOPIC, PartitionIndex(1))])
        waiting = asyncio.ensure_future(growth.wait())
        await parts.ledger.propose(ReportTime())
        await rounds()
        assert not waiting.done()
        await produce(parts, 0)
        async with asyncio.timeout(SECONDS_MAX):
            await waiting
        parts.ledger.unwatch(growth)
        await produce(parts, 1)


async def test_whoever_watches_a_partition_is_woken_when_its_topic_goes() -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        growth = parts.ledger.watch([PARTITION])
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        async with asyncio.timeout(SECONDS_MAX):
            await growth.wait()
        parts.ledger.unwatch(growth)


async def test_the_use_of_quotas_is_told_once_to_every_agent_that_is_there() -> None:
    ledger, begin = MemoryLedger(), start(rules=RULES_NEWEST)
    async with running_parts(ledger, begin) as parts:
        told: list[tuple[SessionId, Sequence[QuotaUse]]] = []
        parts.ledger.apply_loop.on_quota_uses = lambda session, uses: told.append((session, uses))
        await parts.ledger.propose(create())
        session, uses = parts.ledger.session, (QuotaUse(key=7, byte_count=100),)
        command = replace(commit(0, Chunk(batches=[Batch()]), session=session), quota_uses=uses)
        await parts.ledger.propose(command)
        # The object is committed already: what was sent counts all the same.
        assert isinstance(await parts.ledger.propose(command), Rejected)
        await produce(parts, 1)
        assert told == [(session, uses), (session, uses)]
        async with running_parts(ledger, start("b", node=2, rules=RULES_NEWEST)) as others:
            # What was applied while an agent starts is older than it.
            later: list[tuple[SessionId, Sequence[QuotaUse]]] = []
            others.ledger.apply_loop.on_quota_uses = lambda session, uses: later.append((session, uses))
            await parts.ledger.propose(replace(commit(2, Chunk(batches=[Batch()]), session=session), quota_uses=uses))
            await others.ledger.barrier()
            assert later == [(session, uses)]


async def test_a_position_is_waited_for() -> None:
    async with running_parts() as parts:
        position = parts.ledger.state.position
        await parts.ledger.apply_loop.reach(position)
        waiting = asyncio.ensure_future(parts.ledger.apply_loop.reach(Position(position + 2)))
        await parts.ledger.propose(ReportTime())
        await rounds()
        assert not waiting.done()
        await parts.ledger.propose(ReportTime())
        async with asyncio.timeout(SECONDS_MAX):
            await waiting


async def test_a_ledger_that_was_away_is_followed_again_from_where_it_stopped() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await parts.ledger.propose(create())
        ledger.is_reachable = False
        outcome = parts.ledger.propose(commit(0, Chunk(batches=[Batch()]), session=parts.ledger.session))
        await rounds()
        assert not outcome.done()
        ledger.is_reachable = True
        async with asyncio.timeout(SECONDS_MAX):
            await outcome
        found = parts.ledger.state.partition(TOPIC, PartitionIndex(0))
        assert found is not None
        assert found.log_end == 1


class TestALedgerThatWasTrimmedPastAReader:
    """The state is loaded again, and everybody who waits is served from it or told to ask again (S1, S9)."""

    @staticmethod
    async def trimmed_past(ledger: MemoryLedger, store: MemoryStore, others: Parts) -> None:
        """A snapshot of what the others have applied, and no entry below it."""
        state = others.ledger.state
        content, state_digest = encode_with_digest(state)
        key = snapshot_key(state.position)
        await store.put(key, [content])
        pointer = SnapshotPointer(
            position=state.position, object_key=key, appends_count=state.appends_count, digest=state_digest
        )
        assert await ledger.set_snapshot((await ledger.load()).pointer, pointer)
        await ledger.trim(state.position)

    async def test_it_goes_on_from_the_snapshot_and_wakes_who_waits(self) -> None:
        core, store = MemoryLedgerCore(), MemoryStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        async with (
            running_parts(fast, start("b", node=2), store=store) as others,
            running_parts(slow, store=store) as parts,
        ):
            await parts.ledger.propose(create())
            growth = parts.ledger.watch([PARTITION])
            reaching = asyncio.ensure_future(parts.ledger.apply_loop.reach(Position(parts.ledger.state.position + 2)))
            slow.hears.clear()
            await produce(others, 0)
            await self.trimmed_past(fast, store, others)
            await produce(others, 1)
            slow.hears.set()
            slow.core.wake()
            async with asyncio.timeout(SECONDS_MAX):
                await growth.wait()
                await reaching
                await parts.ledger.barrier()
            parts.ledger.unwatch(growth)
            assert parts.ledger.apply_loop.reloads_count == 1
            assert digest(parts.ledger.state) == digest(others.ledger.state)
            await produce(parts, 0)

    async def test_s1_an_own_entry_that_the_snapshot_covers_is_unknown_and_never_appended_again(self) -> None:
        core, store = MemoryLedgerCore(), MemoryStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        async with (
            running_parts(fast, start("b", node=2), store=store) as others,
            running_parts(slow, store=store) as parts,
        ):
            await parts.ledger.propose(create())
            slow.hears.clear()
            covered = parts.ledger.propose(commit(0, Chunk(batches=[Batch()]), session=parts.ledger.session))
            await rounds()
            await self.trimmed_past(fast, store, others)
            later = parts.ledger.propose(commit(1, Chunk(batches=[Batch()]), session=parts.ledger.session))
            await rounds()
            slow.hears.set()
            slow.core.wake()
            async with asyncio.timeout(SECONDS_MAX):
                with pytest.raises(OutcomeUnknown):
                    await covered
                assert isinstance(await later, ChunksCommitted)  # above the snapshot, so its outcome is known
                await parts.ledger.barrier()
            found = parts.ledger.state.partition(TOPIC, PartitionIndex(0))
            assert found is not None
            assert found.log_end == 2

    async def test_a_session_whose_start_is_covered_began(self) -> None:
        core, store = MemoryLedgerCore(), MemoryStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        async with running_parts(fast, start("b", node=2), store=store) as others:
            slow.hears.clear()
            async with asyncio.TaskGroup() as tasks:
                entered = tasks.create_task(self.entered(slow, store))
                await rounds()
                await self.trimmed_past(fast, store, others)
                slow.hears.set()
                slow.core.wake()
            assert entered.result() in others.ledger.state.sessions

    @staticmethod
    async def entered(ledger: MemoryLedger, store: MemoryStore) -> SessionId:
        async with asyncio.timeout(SECONDS_MAX), running_parts(ledger, store=store) as parts:
            return parts.ledger.session

    async def test_a_ledger_that_went_back_is_not_followed(self) -> None:
        core, store = MemoryLedgerCore(), MemoryStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        with pytest.RaisesGroup(pytest.RaisesExc(LedgerCorrupt, match="restored from an older copy")):
            async with running_parts(slow, store=store) as parts, running_parts(fast, start("b", node=2)) as others:
                await self.trimmed_past(fast, store, others)
                await parts.ledger.barrier()
                slow.hears.clear()
                parts.ledger.state.position = Position(1 << 40)
                slow.is_trimmed = True
                slow.hears.set()
                slow.core.wake()
                await parts.ledger.apply_loop.reach(Position(1 << 41))

    @pytest.mark.parametrize("rejection", [StoreDenied, StoreMisconfigured, BucketMissing, StoreError])
    async def test_a_store_that_refuses_the_snapshot_is_waited_out(
        self, rejection: type[StoreError], caplog: pytest.LogCaptureFixture
    ) -> None:
        """As while keys are rotated: the agent goes on by itself, and says once why it does not."""
        core, store = MemoryLedgerCore(), RefusingStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        async with (
            running_parts(fast, start("b", node=2), store=store) as others,
            running_parts(slow, store=store) as parts,
        ):
            await parts.ledger.propose(create())
            slow.hears.clear()
            await produce(others, 0)
            await self.trimmed_past(fast, store, others)
            store.refusals = [rejection("rotated")] * 3
            slow.hears.set()
            slow.core.wake()
            async with asyncio.timeout(SECONDS_MAX):
                await parts.ledger.barrier()
                await produce(parts, 0)
            assert not store.refusals
            assert parts.ledger.apply_loop.reloads_count == 1
            assert parts.clock.slept.count(LEDGER_RELOAD_REJECTED_SECONDS) == 3
        refused = [record for record in caplog.records if record.levelname == "ERROR"]
        assert [record.__dict__["reason"] for record in refused] == [f"{rejection.__name__}: rotated"]

    @pytest.mark.parametrize("wrong", [ObjectDamaged("a bad sector"), ObjectMissing("not there")])
    async def test_a_snapshot_that_is_missing_or_damaged_ends_the_agent_as_at_its_start(
        self, wrong: StoreError
    ) -> None:
        core, store = MemoryLedgerCore(), RefusingStore()
        slow, fast = DeafLedger(core), MemoryLedger(core)
        with pytest.RaisesGroup(pytest.RaisesExc(LedgerCorrupt, match="penstock recover"), flatten_subgroups=True):
            async with (
                running_parts(fast, start("b", node=2), store=store) as others,
                running_parts(slow, store=store) as parts,
            ):
                await parts.ledger.propose(create())
                slow.hears.clear()
                await produce(others, 0)
                await self.trimmed_past(fast, store, others)
                store.refusals = [wrong] * LEDGER_LOAD_ATTEMPTS_MAX
                slow.hears.set()
                slow.core.wake()
                await parts.ledger.apply_loop.reach(Position(1 << 41))


class RefusingStore(MemoryStore):
    """Its next gets fail as a test says."""

    refusals: Sequence[StoreError] = ()

    async def get(self, key: str) -> bytes:
        if self.refusals:
            rejection, *self.refusals = self.refusals
            raise rejection
        return await super().get(key)


async def test_a_barrier_that_nobody_waits_for_any_more_fails_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context))
    async with running_parts() as parts:

        async def no_head() -> Head:
            raise LedgerUnavailable("away")

        with monkeypatch.context() as patching:
            patching.setattr(parts.backend, "head", no_head)
            barrier = parts.ledger.begin_barrier()
            await until(barrier.done)
        await parts.ledger.barrier()  # nothing else refers to the one before then
        del barrier
        gc.collect()
        assert not seen
