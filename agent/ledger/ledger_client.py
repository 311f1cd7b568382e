"""This agent's client of the ledger: the state that its entries make, and the session that proposes commands.

It folds two parts behind one interface. `apply_loop` reads the ledger and applies it; `writer` owns the session and
appends. The state can be followed before the session is open.
"""

import asyncio
from collections.abc import Callable, Sequence

from agent.ledger.apply_loop import ApplyLoop, Growth, PartitionKey
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartWaits
from coordinator.commands.commands import Command, Outcome, StartSession
from coordinator.follower import Follower
from coordinator.ledger.port import Ledger
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, Position, SessionId
from storage.object_store import ObjectStore, ObjectToPut


class LedgerClient:
    """One agent has one. The broker runs the loops of its parts."""

    def __init__(
        self,
        *,
        backend: Ledger,
        store: ObjectStore,
        follower: Follower,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        metrics: Metrics,
    ) -> None:
        """`backend`: the ledger itself, of whatever kind. `proposed_time`: None while the clock is not trusted (S2)."""
        self.backend = backend
        self.apply_loop = ApplyLoop(ledger=backend, store=store, follower=follower, clock=clock)
        self.writer = LedgerWriter(
            ledger=backend, apply_loop=self.apply_loop, clock=clock, proposed_time=proposed_time, metrics=metrics
        )

    @property
    def state(self) -> ClusterState:
        """The state as far as it is applied. A reload replaces the object: read it again after every await."""
        return self.apply_loop.state

    async def barrier(self) -> Position:
        """The ledger's position, once everything that was in it when this was called is applied (safety rule S4).

        Raises `LedgerUnavailable` when the ledger does not answer in time.
        """
        return await self.apply_loop.barrier()

    def begin_barrier(self) -> asyncio.Future[Position]:
        """The future behind `barrier`; the caller sets its own time-out."""
        return self.apply_loop.begin_barrier()

    def watch(self, keys: Sequence[PartitionKey]) -> Growth:
        """Begin to watch partitions; end with `unwatch`."""
        return self.apply_loop.watch(keys)

    def unwatch(self, growth: Growth) -> None:
        self.apply_loop.unwatch(growth)

    @property
    def session(self) -> SessionId:
        """The newest session that the ledger gave; -1 before `open`. Objects are put under `until_live` alone."""
        return self.writer.session

    @property
    def agent(self) -> StartSession:
        """The agent's description of itself, as given to `open`."""
        return self.writer.agent

    async def open(
        self,
        agent: StartSession,
        *,
        is_holding_rules: bool = False,
        is_taking_over_name: bool = False,
        waits: StartWaits | None = None,
    ) -> None:
        """Begin the first session, and return once its first entry is applied: later ones begin like it.

        `is_holding_rules`: whether the agent is about to hold the rules version. `is_taking_over_name`: whether a
        session of another process under the agent's name is ended, instead of waited for (S12). `waits`: those of the
        start.
        """
        self.writer.agent = agent
        if waits is not None:
            self.writer.start_waits = waits
        self.writer.is_holding_rules, self.writer.is_taking_over_name = is_holding_rules, is_taking_over_name
        await self.writer.open()

    async def until_live(self) -> SessionId:
        """The session that objects are put under, once its start is applied; waits while a session is replaced."""
        return await self.writer.until_live()

    @property
    def confirmed_s(self) -> float:
        """The last monotonic time at which the session was alive and this agent's state was the ledger's (S4)."""
        return self.writer.confirmed_s

    @property
    def opened_s(self) -> float:
        """The monotonic time at which the ledger gave the newest session, or -inf."""
        return self.writer.opened_s

    @property
    def returned_s(self) -> float:
        """The last monotonic time at which the ledger answered after an outage of more than a lease's time, or -inf."""
        return self.writer.returned_s

    @property
    def is_confirmed(self) -> bool:
        """Whether that is within a lease's time. Else the session may be over, and other agents may know more (S4)."""
        return self.writer.is_confirmed

    @property
    def takes_objects(self) -> bool:
        """Whether an object may be proposed together with the command that names it: both become durable at once."""
        return self.writer.takes_objects

    def propose(self, command: Command, stored: ObjectToPut | None = None) -> asyncio.Future[Outcome]:
        """Queue a command. The future gets its outcome once it is applied, or raises `OutcomeUnknown`.

        The order of calls is the order in the ledger (`LedgerWriter.propose`). `stored`: an object that the command
        names, and that is put by the same write; only where `takes_objects`.
        """
        return self.writer.propose(command, stored)

    async def start_drain(self) -> None:
        """Take this agent out of Metadata, so that clients go to other agents (`LedgerWriter.start_drain`)."""
        await self.writer.start_drain()

    async def close(self) -> None:
        """End the session behind all queued commands."""
        await self.writer.close()
