"""The shell around `coordinator.follower`: reads the ledger, applies it, and wakes whoever waits for what was applied.

Rule: this loop is the only one that changes the cluster's state, and it does so without awaiting, so every other task
sees the state at one whole position. Waiting for an outcome, for growth or for a barrier happens here and nowhere else.
An agent that was slow or cut off for so long that what it has not read was trimmed loads the state again, in the place
of the old one (safety rule S9): whoever keeps a part of the state across an await may keep a part of the old one.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.ledger.bootstrap import load_state
from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_own_thread
from coordinator.commands.commands import DEFINITIONS, ChunksCommitted, DeleteTopic, Outcome
from coordinator.commands.transaction import TransactionDecided
from coordinator.follower import Applied, Follower
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerRecord, LedgerUnavailable, OutcomeUnknown, Trimmed
from coordinator.snapshot import Frozen
from coordinator.state.state import ClusterState, DigestComparison
from protocol.limits import BARRIER_SECONDS_MAX, LEDGER_RELOAD_REFUSED_SECONDS
from protocol.types import PartitionIndex, Position, SessionId, TopicId
from storage.object_store import ObjectStore, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

PartitionKey = tuple[TopicId, PartitionIndex]
RETRY_SECONDS = 0.2


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
    """The state at one position, and how much was applied up to it since this agent started."""

    frozen: Frozen
    entries_applied_count: int
    entry_bytes_applied: int


class ApplyLoop:
    """Follows the ledger. `state` is the cluster's state as far as this agent has applied it."""

    def __init__(self, *, ledger: Ledger, store: ObjectStore, follower: Follower, clock: Clock) -> None:
        self._ledger = ledger
        self._store = store
        self._follower = follower
        self._clock = clock
        self._applying = asyncio.Lock()
        self._applied_when_frozen = (0, 0)
        self._outcomes: dict[tuple[SessionId, int], asyncio.Future[Outcome]] = {}
        # Dictionaries in the place of sets: whoever waited first is woken first, in every run alike.
        self._growing: dict[PartitionKey, dict[Growth, None]] = defaultdict(dict)
        self._reached: list[tuple[Position, asyncio.Future[None]]] = []
        self._barrier_waiters: list[asyncio.Future[Position]] = []
        self._barrier_wanted = asyncio.Event()
        self.entries_applied_count = 0
        self.entry_bytes_applied = 0
        self.definitions_count = 0
        """Entries applied that say what stands in no object of the intake."""
        self.reloads_count = 0
        """How often the state was loaded again because what followed it had been trimmed."""

    @property
    def state(self) -> ClusterState:
        """The state as far as it is applied. A reload replaces the object: read it again after every await."""
        return self._follower.state

    async def freeze(self) -> FrozenState:
        """The state as it is now. Nothing is applied until a thread has copied it; the loop goes on meanwhile."""
        async with self._applying:
            return FrozenState(
                frozen=await run_in_own_thread(Frozen, self.state),
                entries_applied_count=self.entries_applied_count,
                entry_bytes_applied=self.entry_bytes_applied,
            )

    async def take_frozen(self) -> tuple[DigestComparison, FrozenState | None] | None:
        """The comparison of digests that is going on or was last (safety rule S3), if any, and once the state at its
        position: not again, nor where this agent came past that by a snapshot.
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

    def expect(self, session: SessionId, number: int, future: asyncio.Future[Outcome]) -> None:
        """Give the outcome of an own entry to `future` when it is applied."""
        self._outcomes[session, number] = future

    def abandon(self, session: SessionId) -> Iterable[asyncio.Future[Outcome]]:
        """Stop expecting outcomes of a session that is over, and return whoever waited for them (safety rule S1)."""
        keys = [key for key in self._outcomes if key[0] == session]
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
        self._barrier_wanted.set()
        return future

    async def reach(self, position: Position) -> None:
        """Return once `position` is applied."""
        if self.state.position >= position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reached.append((position, future))
        await future

    async def run_barriers(self) -> None:
        """Answer barriers. Whoever asks while a request is on its way waits for the next one (safety rule S4)."""
        while True:
            await self._barrier_wanted.wait()
            self._barrier_wanted.clear()
            waiters, self._barrier_waiters = self._barrier_waiters, []
            try:
                head = await self._ledger.head()
            except LedgerUnavailable as error:
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_exception(error)
                continue
            await self.reach(head.position)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(head.position)

    async def run(self) -> None:
        """Apply what comes, for ever. The ledger's absence is waited out; a ledger that contradicts itself raises.

        So is the store's, and its refusal: keys may be rotated just when an agent loads the state again. A snapshot
        that is missing or damaged contradicts the ledger, as at the start (`load`).
        """
        is_trimmed = False
        refusal: type[StoreError] | None = None
        """The last one that was logged, until a reload succeeds."""
        while True:
            try:
                if is_trimmed:
                    await self._reload()
                    is_trimmed, refusal = False, None
                async for records in self._ledger.tail(self.state.position):
                    await self._receive(records)
            except Trimmed as error:
                log.warning("this agent fell behind the ledger, loading the state again", extra={"reason": str(error)})
                is_trimmed = True
            except (LedgerUnavailable, StoreUnavailable) as error:
                log.debug("the ledger or its snapshot is away, reading it again", extra={"reason": str(error)})
                await self._clock.sleep(RETRY_SECONDS)
            except StoreError as error:
                if type(error) is not refusal:
                    refusal = type(error)
                    log.error(
                        "the store does not let this agent read the ledger's snapshot: it serves nothing that it has "
                        'to confirm, and tries again until it may (docs/operations/bucket.md, "The bucket is '
                        'denied, or does not answer")',
                        extra={"reason": f"{refusal.__name__}: {error}"},
                    )
                await self._clock.sleep(LEDGER_RELOAD_REFUSED_SECONDS)

    async def _reload(self) -> None:
        """Put the state at the ledger's head in the place of the one that cannot go on, and wake everybody."""
        loaded = await load_state(self._ledger, self._store, self._follower.rules_known)
        if loaded.follower.state.position < self.state.position:
            raise LedgerCorrupt(
                f"the ledger ends at {loaded.follower.state.position}, but this agent has read it up to "
                f"{self.state.position}: it was restored from an older copy, or wiped. Stop all agents and run "
                "`penstock recover`; nothing was changed"
            )
        self._follower = loaded.follower
        self.reloads_count += 1
        log.info("the state was loaded again", extra={"position": self.state.position})
        self.entry_bytes_applied += sum(len(record.payload) for record in loaded.start.records)
        for applied in loaded.applied:
            self._count(applied)
            self._settle(applied)
        self._give_up_covered()
        for watching in self._growing.values():
            for growth in watching:
                growth.notify()
        self._wake_reached()

    def _give_up_covered(self) -> None:
        """Whoever waits for an own entry that the snapshot covers never learns its outcome (safety rule S1)."""
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
        """Apply them; behind an append that asks for the digest apply no more until the state is frozen (S3)."""
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
            if applied.proposal is not None and isinstance(applied.proposal.command, DeleteTopic):
                topic_id = applied.proposal.command.topic_id
                grown.update((key, None) for key in self._growing if key[0] == topic_id)
        if self._growing:
            for key in grown:
                for growth in self._growing.get(key, ()):
                    growth.notify()
        if self._reached:
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
        position = self.state.position
        for wanted, future in self._reached:
            if wanted <= position and not future.done():
                future.set_result(None)
        self._reached = [(wanted, future) for wanted, future in self._reached if wanted > position]
