"""The loop that reads the ledger, applies its entries (`coordinator.follower`), and wakes the tasks that wait for them.

In: records of the ledger's tail. Out: `state`, the outcomes of this agent's own entries, barriers, and signals that a
partition has grown. Nothing else changes the state, and entries are applied without an await in between, so every
other task sees the state at one whole position.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.ledger.bootstrap import load_state
from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_own_thread
from coordinator.codec.codec import WrittenEntry
from coordinator.commands.commands import DEFINITIONS, ChunksCommitted, CommitChunks, DeleteTopic, Outcome, QuotaUse
from coordinator.commands.transaction import TransactionDecided
from coordinator.follower import Applied, Follower
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerRecord, LedgerUnavailable, OutcomeUnknown, Trimmed
from coordinator.snapshot import Frozen
from coordinator.state.state import ClusterState, DigestComparison
from protocol.limits import BARRIER_SECONDS_MAX, LEDGER_RELOAD_REJECTED_SECONDS
from protocol.types import PartitionIndex, Position, SessionId, TopicId
from storage.object_store import ObjectStore, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

PartitionKey = tuple[TopicId, PartitionIndex]
RETRY_SECONDS = 0.2
"""The pause before the tail is opened again: short, as nothing is served as current meanwhile."""


class Growth:
    """Waits until one of some partitions grows, or its topic is deleted. Used once, by one fetch."""

    __slots__ = ("_future", "keys")

    def __init__(self, keys: Sequence[PartitionKey], future: asyncio.Future[None]) -> None:
        self.keys = keys
        self._future = future

    def notify(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._future


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """The state at one position, and what was applied up to it since this agent started."""

    frozen: Frozen
    entries_applied_count: int
    entry_bytes_applied: int


class ApplyLoop:
    """Follows the ledger. `state` is the cluster's state as far as this agent has applied it."""

    def __init__(self, *, ledger: Ledger, store: ObjectStore, follower: Follower, clock: Clock) -> None:
        self._ledger = ledger
        self._store = store
        self._follower = follower
        self.state: ClusterState = follower.state
        """The state as far as it is applied. A reload replaces the object: read it again after every await."""
        self._clock = clock
        self._applying = asyncio.Lock()
        self._applied_when_frozen = (0, 0)
        self._outcomes: dict[tuple[SessionId, int], asyncio.Future[Outcome]] = {}
        # Dictionaries instead of sets: waiters wake in the order in which they came, in each simulated run alike.
        self._growing: dict[PartitionKey, dict[Growth, None]] = defaultdict(dict)
        self._position_waiters: list[tuple[Position, asyncio.Future[None]]] = []
        self._barrier_waiters: list[asyncio.Future[Position]] = []
        self._has_barrier_waiters = asyncio.Event()
        self.entries_applied_count = 0
        self.entry_bytes_applied = 0
        self.definitions_count = 0
        """Applied entries whose content no intake object repeats, such as names of topics."""
        self.on_quota_uses: Callable[[SessionId, Sequence[QuotaUse]], None] = lambda _session, _uses: None
        """Takes the use of quotas in an entry of a session. Entries that a load applies are passed over."""
        self.reloads_count = 0
        """How often the state was loaded again because the entries behind it had been trimmed."""

    async def freeze(self) -> FrozenState:
        """The state as it is now. Nothing is applied until a thread has copied it; the loop goes on meanwhile."""
        async with self._applying:
            return FrozenState(
                frozen=await run_in_own_thread(Frozen, self.state),
                entries_applied_count=self.entries_applied_count,
                entry_bytes_applied=self.entry_bytes_applied,
            )

    async def take_frozen(self) -> tuple[DigestComparison, FrozenState | None] | None:
        """The newest comparison of digests (safety rule S3), and the state at its position; None where there is none.

        The state is handed out once. It is None later, and where a snapshot took this agent past the position.
        """
        async with self._applying:
            comparison = self.state.comparison
            frozen, self._follower.frozen = self._follower.frozen, None
            if comparison is None:
                return None
            if frozen is None or frozen.position != comparison.position:
                return comparison, None
            applied, applied_bytes = self._applied_when_frozen
            return comparison, FrozenState(
                frozen=frozen, entries_applied_count=applied, entry_bytes_applied=applied_bytes
            )

    def expect(self, session: SessionId, number: int, written: WrittenEntry, future: asyncio.Future[Outcome]) -> None:
        """Give the outcome of an own entry to `future` when it is applied."""
        self._outcomes[session, number] = future
        self._follower.expect(session, number, written)

    def expect_no_more(self, session: SessionId, number: int) -> None:
        """Stop expecting the outcome of an entry that was not appended."""
        self._outcomes.pop((session, number), None)
        self._follower.expect_no_more(session, number)

    def abandon(self, session: SessionId) -> Iterable[asyncio.Future[Outcome]]:
        """Stop expecting outcomes of a session that is over; returns their futures, for the caller to settle (S1)."""
        keys = [key for key in self._outcomes if key[0] == session]
        for _, number in keys:
            self._follower.expect_no_more(session, number)
        return [self._outcomes.pop(key) for key in keys]

    def watch(self, keys: Sequence[PartitionKey]) -> Growth:
        """Begin to watch partitions; end with `unwatch`."""
        growth = Growth(keys, asyncio.get_running_loop().create_future())
        for key in keys:
            self._growing[key][growth] = None
        return growth

    def unwatch(self, growth: Growth) -> None:
        for key in growth.keys:
            watching = self._growing[key]
            watching.pop(growth, None)
            if not watching:
                del self._growing[key]

    async def barrier(self) -> Position:
        """The ledger's position, once everything that was in it when this was called is applied (safety rule S4).

        Raises `LedgerUnavailable` when the ledger does not answer in time.
        """
        try:
            async with self._clock.timeout(BARRIER_SECONDS_MAX):
                return await self.begin_barrier()
        except TimeoutError as error:
            raise LedgerUnavailable(f"the ledger did not answer a barrier within {BARRIER_SECONDS_MAX} s") from error

    def begin_barrier(self) -> asyncio.Future[Position]:
        """The future behind `barrier`; the caller sets its own time-out."""
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._barrier_waiters.append(future)
        self._has_barrier_waiters.set()
        return future

    async def reach(self, position: Position) -> None:
        """Return once `position` is applied."""
        if self.state.position >= position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._position_waiters.append((position, future))
        await future

    async def run_barriers(self) -> None:
        """Answer barriers, with one request to the ledger for all that wait. Runs until it is cancelled."""
        while True:
            await self._has_barrier_waiters.wait()
            self._has_barrier_waiters.clear()
            # Taken before the request: the answer to a request that was on its way already may be older than a barrier
            # that came meanwhile, so that one waits for the next request (S4).
            waiters, self._barrier_waiters = self._barrier_waiters, []
            try:
                head = await self._ledger.head()
            except LedgerUnavailable as error:
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_exception(error)
                        waiter.exception()  # mark it as retrieved: the caller that shielded it may have given up
                continue
            await self.reach(head.position)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(head.position)

    async def run(self) -> None:
        """Apply the ledger's entries. Runs until it is cancelled, and waits out a ledger or a store that is away.

        Raises `LedgerCorrupt` where the ledger contradicts itself, or its snapshot is missing or damaged, as at the
        start (`load_state`).
        """
        is_trimmed = False
        logged_error: type[StoreError] | None = None
        """The store's error that was logged last, until a reload succeeds."""
        while True:
            try:
                if is_trimmed:
                    await self._reload()
                    is_trimmed, logged_error = False, None
                async for records in self._ledger.tail(self.state.position):
                    await self._receive(records)
            except Trimmed as error:
                log.warning(
                    "this agent fell behind the ledger, which was trimmed: it loads the state again",
                    extra={"reason": str(error)},
                )
                is_trimmed = True
            except (LedgerUnavailable, StoreUnavailable) as error:
                log.debug("the ledger or its snapshot is away, reading it again", extra={"reason": str(error)})
                await self._clock.sleep(RETRY_SECONDS)
            except StoreError as error:
                # A rejected read does not end the agent: credentials may be rotated just when it loads the state again.
                if type(error) is not logged_error:
                    logged_error = type(error)
                    log.error(
                        "the store does not let this agent read the ledger's snapshot: it answers no read that has to "
                        'be current, and tries again until it may (docs/operations/bucket.md, "The bucket is '
                        'denied, or does not answer")',
                        extra={"reason": f"{logged_error.__name__}: {error}"},
                    )
                await self._clock.sleep(LEDGER_RELOAD_REJECTED_SECONDS)

    async def _reload(self) -> None:
        """Replace the state, whose next entries were trimmed, by the one at the ledger's head, and wake all waiters.

        A task that kept a part of the state across an await may have a part of the old one.
        """
        loaded = await load_state(self._ledger, self._store, self._follower.rules_known)
        # A ledger never becomes shorter: this one was restored from a backup, and lacks acknowledged records (S9).
        if loaded.follower.state.position < self.state.position:
            raise LedgerCorrupt(
                f"the ledger ends at {loaded.follower.state.position}, but this agent has read it up to "
                f"{self.state.position}: it was restored from an older copy, or wiped. Stop all agents and run "
                "`penstock recover`; nothing was changed"
            )
        self._follower, self.state = loaded.follower, loaded.follower.state
        self.reloads_count += 1
        log.info("the state was loaded again", extra={"position": self.state.position})
        self.entry_bytes_applied += sum(len(record.payload) for record in loaded.start.records)
        for applied in loaded.applied:
            self._count(applied)
            self._settle(applied)
        self._fail_outcomes_in_snapshot()
        for watching in self._growing.values():
            for growth in watching:
                growth.notify()
        self._wake_reached()

    def _fail_outcomes_in_snapshot(self) -> None:
        """Raise `OutcomeUnknown` in the futures of own entries that the snapshot covers: it has no outcomes (S1)."""
        for (session, number), future in list(self._outcomes.items()):
            live = self.state.sessions.get(session)
            is_past = session in self.state.sessions_ended if live is None else number < live.entry_next
            if is_past:
                del self._outcomes[session, number]
                if not future.done():
                    future.set_exception(
                        OutcomeUnknown(f"entry {number} of session {session} was applied while this agent was behind")
                    )

    async def _receive(self, records: Sequence[LedgerRecord]) -> None:
        """Apply the records. Behind an append that asks for a digest, freeze the state before the next one (S3)."""
        async with self._applying:
            self._receive_until_asked(records)
            while self._follower.is_asked:
                self._follower.frozen = await run_in_own_thread(Frozen, self.state)
                self._applied_when_frozen = self.entries_applied_count, self.entry_bytes_applied
                self._receive_until_asked(records)

    def _receive_until_asked(self, records: Sequence[LedgerRecord]) -> None:
        before = self.state.position
        self._apply(self._follower.receive_until_asked(records))
        applied = (record for record in records if before < record.position <= self.state.position)
        self.entry_bytes_applied += sum(len(record.payload) for record in applied)

    def _apply(self, entries: Sequence[Applied]) -> None:
        grown: dict[PartitionKey, None] = {}
        for applied in entries:
            self._count(applied)
            self._settle(applied)
            match applied.outcome:
                case ChunksCommitted(grown=keys) | TransactionDecided(grown=keys):
                    grown.update(dict.fromkeys(keys))
                case _:
                    pass
            if applied.proposal is not None:
                match applied.proposal.command:
                    case CommitChunks(quota_uses=uses) if uses:
                        self.on_quota_uses(applied.session, uses)
                    case DeleteTopic(topic_id=topic_id):
                        grown.update((key, None) for key in self._growing if key[0] == topic_id)
                    case _:
                        pass
        if self._growing:
            for key in grown:
                for growth in self._growing.get(key, ()):
                    growth.notify()
        if self._position_waiters:
            self._wake_reached()

    def _count(self, applied: Applied) -> None:
        self.entries_applied_count += 1
        if applied.proposal is not None and isinstance(applied.proposal.command, DEFINITIONS):
            self.definitions_count += 1

    def _settle(self, applied: Applied) -> None:
        future = self._outcomes.pop((applied.session, applied.number), None)
        if future is not None and not future.done():
            future.set_result(applied.outcome)

    def _wake_reached(self) -> None:
        applied = self.state.position
        for position, future in self._position_waiters:
            if position <= applied and not future.done():
                future.set_result(None)
        self._position_waiters = [waiter for waiter in self._position_waiters if waiter[0] > applied]
