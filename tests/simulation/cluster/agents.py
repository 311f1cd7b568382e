"""Agents of the world: a name, and one life after the other.

Rule: a life is an agent's real code from its start on, as `agent.components` begins it. To crash it is to drop all its
callbacks at once; nothing of it is closed, cancelled or awaited. What it had sent is on its way still.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Protocol

from agent.broker import Broker
from agent.bucket.cluster_identity import AnotherBucket, check_reached, claim_bucket
from agent.bucket.conditional_puts import check_before_claim
from agent.bucket.full_disk import FullDiskStore
from agent.bucket.permissions import check_access
from agent.config.listener_security import RELAY_LISTENER
from agent.ledger.bootstrap import load_state
from agent.maintenance.progress_marks import leave_mark
from agent.runtime.clock import Clock, SystemClock
from agent.runtime.ids import RESERVED_UUIDS, UUID_BYTES, uuid_text
from agent.runtime.metrics import Metrics
from agent.runtime.start_retries import once_there
from agent.runtime.supervisor import Supervisor
from agent.server.relay.relays import Relays
from coordinator.commands.commands import Endpoint
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerError, OutcomeUnknown
from protocol.types import Milliseconds
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.decorators.routed import RoutedStore
from storage.object_store import ObjectStore, StoreMisconfigured
from storage.refs import INTAKE_PREFIX
from tests.simulation.cluster.agent_settings import PORT, RELAY_PORT, settings_of
from tests.simulation.cluster.embedded import Machine, Reference, TornDisk
from tests.simulation.cluster.ledger import LedgerServer, SimulatedLedger
from tests.simulation.cluster.links import Link
from tests.simulation.cluster.store import SimulatedBucket, SimulatedStore
from tests.simulation.faults.disturbances import Spells
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.history import History
from tests.simulation.loop import NODE, SimulatedLoop
from tests.simulation.plan import Plan

ONE_ADDRESS = "one-address"
"""The host that all agents advertise to clients in some worlds."""
LEDGER_TIMEOUT_SECONDS = 5.0
STORE_TIMEOUT_SECONDS = 10.0
PUTS_GIVEN_UP_AFTER_SECONDS = 15.0
DRAIN_SECONDS_MAX = 20.0
COMMITS_SECONDS_MAX = DRAIN_SECONDS_MAX / 8
"""How long others wait for what a stopping agent took: `Broker.redirect_clients`."""


class ServerEnd(Protocol):
    """The agent's end of a connection."""

    @property
    def owes_answers(self) -> bool: ...

    def stop_taking_up(self) -> None: ...

    def close(self) -> None: ...

    def died(self) -> None: ...


class OpenedConnection(Protocol):
    """A connection that an agent has opened to another one."""

    def died(self) -> None: ...


class AgentClock(SystemClock):
    """The loop's time, from a moment of the agent's own; its wall clock may be off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: Callable[[], int], started_s: float) -> None:
        self._loop = loop
        self._wall_ms = wall_ms
        self._started_s = started_s
        self.off_by_ms = 0

    def now_ms(self) -> Milliseconds:
        return Milliseconds(self._wall_ms() + self.off_by_ms)

    def monotonic_s(self) -> float:
        return self._started_s + self._loop.time()

    def uptime_s(self) -> float:
        """No agent's machine sleeps; counted from another moment than `monotonic_s`."""
        return self._loop.time() + 5_000.0

    def thread_cpu_s(self) -> float:
        """Work takes no time here; counted from another moment than `monotonic_s`."""
        return -900.0


class SeededIds:
    """Implements `agent.runtime.ids.Ids`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def new_uuid(self) -> bytes:
        while True:
            drawn = self._chance.randbytes(UUID_BYTES)
            if drawn not in RESERVED_UUIDS:
                return drawn

    def new_cluster_id(self) -> str:
        return uuid_text(self.new_uuid())

    def jitter(self) -> float:
        return self._chance.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the world gives to every agent."""

    loop: SimulatedLoop
    chance: random.Random
    history: History
    outside: Context
    plan: Plan
    ledger: LedgerServer
    bucket: SimulatedBucket
    wall_ms: Callable[[], int]
    relayed_answers: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Which agent answered a relayed request, by the client's connection and the request's number."""


class AgentInWorld:
    """One name among the agents; alive or not."""

    def __init__(self, number: int, around: Surroundings) -> None:
        self.number = number
        self.name = f"agent-{number}"
        self._around = around
        self.clock = AgentClock(around.loop, around.wall_ms, started_s=1000.0 * (number + 1))
        self.ledger_link = self._link("ledger", around.plan.delay_s, LEDGER_TIMEOUT_SECONDS)
        self.store_link = self._link("store", around.plan.store_delay_s, STORE_TIMEOUT_SECONDS)
        self.ledger = SimulatedLedger(around.ledger, self.ledger_link)
        self.store = SimulatedStore(around.bucket, self.store_link, around.chance)
        self.machine = self._new_machine() if around.plan.is_embedded else None
        """Of an embedded broker."""
        self.is_cut_from_clients = self.is_cut_from_agents = False
        self.disturbed = Spells(around.loop.time)
        """While any fault has to do with it."""
        self.rules_known = RULES_FIRST if around.plan.has_older_agents else RULES_NEWEST
        """What its next life knows."""
        self.life: Life | None = None
        self.left_behind: list[Life] = []
        """Lives before it that go on, and are not known to be dead by whoever started the next one."""
        self.lives_count = 0

    def start(self) -> None:
        """Begin another life, unless it lives."""
        if self.life is None:
            self.lives_count += 1
            self.life = Life(self, self._around, f"{self.name}.{self.lives_count}")
            self._around.history.note(self.name, "starts", str(self.life))

    def leave_behind(self) -> "Life | None":
        """Let its life go on by itself, so that another one can begin under the same name; None where it is dead."""
        left, self.life = self.life, None
        if left is not None:
            self.left_behind.append(left)
            self.ledger = SimulatedLedger(self._around.ledger, self.ledger_link)  # a process has its own connection
            self._around.history.note(self.name, "is left behind", str(left))
        return left

    def crash(self) -> None:
        """End it between two callbacks."""
        if self.life is not None:
            self._around.history.note(self.name, "crashes")
            self.ended(self.life)

    def ended(self, life: "Life") -> None:
        """A life is over, for whatever reason."""
        life.die()
        if self.machine is not None:
            self.machine.end_process()
        if self.life is life:
            self.life = None
        if life in self.left_behind:
            self.left_behind.remove(life)

    @property
    def disk(self) -> TornDisk:
        """The disk of an embedded broker."""
        assert self.machine is not None, "others have a bucket"
        return self.machine.disk

    def _new_machine(self) -> Machine:
        around = self._around
        reference = Reference(server=around.ledger, bucket=around.bucket, history=around.history)
        return Machine(reference=reference, chance=around.chance, who=f"{self.name}/store", now_ms=around.wall_ms)

    @property
    def broker(self) -> Broker | None:
        """Where it serves."""
        return None if self.life is None else self.life.broker

    def _link(self, server: str, delay_s: float, timeout_s: float) -> Link:
        around = self._around
        return Link(
            name=f"{self.name}/{server}",
            loop=around.loop,
            chance=around.chance,
            history=around.history,
            outside=around.outside,
            delay_s=delay_s,
            timeout_s=timeout_s,
        )


class Life:
    """One run of an agent's process. Implements `tests.simulation.loop.Owner`."""

    def __init__(self, agent: AgentInWorld, around: Surroundings, name: str) -> None:
        self.agent = agent
        self._around = around
        self._name = name
        self._held: list[asyncio.Handle] = []
        self._callbacks_left = -1
        self._is_draining = asyncio.Event()
        self._started_s = around.loop.time()
        self._rules_known = agent.rules_known
        self._drain_began_s: float | None = None
        self._has_served = False
        self.is_dead = False
        self.is_paused = False
        self.broker: Broker | None = None
        self.ends: list[ServerEnd] = []
        """Of its connections."""
        self.wires: list[OpenedConnection] = []
        """To other agents."""
        self.relays: Relays | None = None
        """Where all agents have one address for clients."""
        self.context = copy_context()
        self.context.run(NODE.set, self)
        self._main = around.loop.create_task(self._live(), name=name, context=self.context)
        self._main.add_done_callback(self._ended, context=around.outside)

    def __str__(self) -> str:
        return self._name

    def may_run(self, handle: asyncio.Handle) -> bool:
        if self.is_dead:
            return False
        if self.is_paused:
            self._held.append(handle)
            return False
        if self._callbacks_left >= 0:
            self._callbacks_left -= 1
            if self._callbacks_left < 0:
                self._around.history.note(self.agent.name, "crashes")
                self.agent.ended(self)
                return False
        return True

    def crash_after(self, callbacks: int) -> None:
        """End it when so many more of its callbacks have run; -1 for not at all."""
        self._callbacks_left = callbacks

    def lose_power(self) -> None:
        """End it, with the disk as a loss of power leaves it."""
        self._around.history.note(self.agent.name, "loses its power")
        self.agent.disk.has_power = False
        self.agent.ended(self)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        self._around.loop.release(held)

    def drain(self) -> None:
        """Ask it to stop in order."""
        self._is_draining.set()

    def look_at_drain(self) -> None:
        """Others lead from now on: what it took has to be in the ledger before, if that did not take long (S8)."""
        began_s, broker = self._drain_began_s, self.broker
        if began_s is None or broker is None or self._around.loop.time() - began_s >= COMMITS_SECONDS_MAX:
            return
        if broker._produce.bytes_held:
            self._around.history.violation(
                f"{self} lets others lead before {broker._produce.bytes_held} bytes that it took are committed (S8)"
            )

    def die(self) -> None:
        self.is_dead = True
        for end in self.ends:
            end.died()
        for wire in self.wires:
            wire.died()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if self.is_dead:
            return
        self.agent.ended(self)
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._around.history.note(self.agent.name, "stopped")
            return
        if self._may_refuse(error):
            self._around.history.note(self.agent.name, "refuses to serve", _told(error))
        else:
            self._around.history.violation(f"{self} ended by itself: {_told(error)}")

    def _may_refuse(self, error: BaseException) -> bool:
        """Whether it has seen another ledger than that of today, or its bucket (safety rule S9); or was left behind by
        the rules, while it was away (S3); or finds at its start that the bucket denies something, or ignores
        conditions.
        """
        bucket = self._around.bucket
        if _holds(error, StoreMisconfigured):
            is_right = bucket.denying.was_on(self._started_s) or bucket.unconditional.was_on(self._started_s)
            return is_right and not self._has_served
        if _holds(error, LedgerCorrupt) and bucket.replaced.was_on(self._started_s):
            return True
        if self._rules_known < self._around.ledger.truth.state.rules_version:
            return _holds(error, LedgerCorrupt) or _holds(error, RuntimeError)
        trusted_s = self._around.ledger.trusted_s
        return _holds(error, LedgerCorrupt) and (trusted_s is None or self._started_s <= trusted_s)

    async def _live(self) -> None:
        around, agent = self._around, self.agent
        clock, ids = agent.clock, SeededIds(around.chance)
        disk = FullDiskStore(agent.store, lambda: agent.store.is_known_full, sleep=clock.sleep)
        store = RetryingStore(
            disk if FaultName.DISK_FULL in around.plan.faults else agent.store,
            policy=RetryPolicy(deadline_s=PUTS_GIVEN_UP_AFTER_SECONDS),
            ports=RetryPorts(monotonic_s=clock.monotonic_s, sleep=clock.sleep, chance=ids.jitter),
        )
        new_bucket_id = ids.new_cluster_id()
        if agent.machine is not None:
            opened, journal_ledger, intake = await agent.machine.open(ids.new_uuid)
            await self._serve(journal_ledger, RoutedStore(INTAKE_PREFIX, intake, store), new_bucket_id)
            await intake.close()
            await journal_ledger.close()
            await opened.close()
            return
        agent.ledger.reopen()
        if around.plan.is_store_tried:
            await self._try_store(store, agent.ledger, clock, ids)
        await self._serve(agent.ledger, store, new_bucket_id)

    async def _serve(self, ledger: Ledger, store: ObjectStore, new_bucket_id: str) -> None:
        """As `agent.components` does, on a ledger and a bucket that are open."""
        around, agent = self._around, self.agent
        clock, ids = agent.clock, SeededIds(around.chance)
        identity = await once_there(lambda: claim_bucket(store, ledger, new_bucket_id=new_bucket_id), clock)
        await once_there(lambda: check_reached(store, ledger), clock)
        loaded = await once_there(lambda: load_state(ledger, store, self._rules_known), clock)
        supervisor, tasks = Supervisor(clock=clock, ids=ids), asyncio.TaskGroup()
        broker = Broker(
            settings=settings_of(agent.name, around.plan),
            identity=identity,
            ledger=ledger,
            store=store,
            follower=loaded.follower,
            clock=clock,
            ids=ids,
            metrics=Metrics(),
            tasks=tasks,
            supervisor=supervisor,
        )
        try:
            async with supervisor, tasks:
                try:
                    await broker.begin(self._endpoints())
                    self._begin_relays(broker, clock)
                    self.broker, self._has_served = broker, True
                    around.history.note(agent.name, "serves", f"session {broker.session}")
                    await self._is_draining.wait()
                    await self._drain(broker, clock)
                except (Exception, asyncio.CancelledError):  # nothing else: of a crashed one nothing is closed
                    await self._leave(supervisor)
                    raise
                await self._leave(supervisor)
        except (LedgerCorrupt, BaseExceptionGroup) as error:
            if _holds(error, LedgerCorrupt) and not _holds(error, AnotherBucket):
                await leave_mark(store, broker.state, clock)
            raise

    def _endpoints(self) -> list[Endpoint]:
        name = self.agent.name
        if not self._around.plan.has_one_address:
            return [Endpoint(listener="PLAINTEXT", host=name, port=PORT)]
        return [
            Endpoint(listener="PLAINTEXT", host=ONE_ADDRESS, port=PORT),
            Endpoint(listener=RELAY_LISTENER, host=name, port=RELAY_PORT),
        ]

    def _begin_relays(self, broker: Broker, clock: Clock) -> None:
        """As `agent.agent` does where there is a listener RELAY."""
        if self._around.plan.has_one_address:
            self.relays = Relays(state=lambda: broker.state, tls=lambda: None, clock=clock, metrics=Metrics())
            broker.repeat(self.relays.job)

    async def _leave(self, supervisor: Supervisor) -> None:
        """As `agent.agent.Agent` is left, for whatever reason: no client is served while its tasks end."""
        self.stop_serving()
        await supervisor.stop()

    async def _try_store(self, store: ObjectStore, ledger: SimulatedLedger, clock: Clock, ids: SeededIds) -> None:
        """As `agent.components` does with a shared store, before anything relies on it."""
        await once_there(lambda: check_access(store), clock)
        began_s = self._around.loop.time()
        await once_there(lambda: check_before_claim(store, ledger, name=ids.new_cluster_id(), is_shared=True), clock)
        bucket = self._around.bucket
        if bucket.unconditional.is_on_since(began_s) and not bucket.replaced.was_on(began_s):
            self._around.history.violation(f"{self} starts on a store that ignores If-None-Match (S9)")

    async def _drain(self, broker: Broker, clock: Clock) -> None:
        """In the order of `agent.agent.Agent.drain`."""
        self._drain_began_s = self._around.loop.time()
        try:
            async with clock.timeout(DRAIN_SECONDS_MAX):
                try:
                    await broker.redirect_clients(seconds_max=2 * COMMITS_SECONDS_MAX)
                except (TimeoutError, OutcomeUnknown):
                    self._around.history.note(self.agent.name, "clients stay")
                self.broker = None
                for end in self.ends:
                    end.stop_taking_up()
                deadline_s = clock.monotonic_s() + DRAIN_SECONDS_MAX / 2
                while any(end.owes_answers for end in self.ends) and clock.monotonic_s() < deadline_s:
                    await clock.sleep(0.05)
                self.stop_serving()
                await broker.drain()
        except (TimeoutError, OutcomeUnknown, LedgerError):
            self._around.history.note(self.agent.name, "not drained")

    def stop_serving(self) -> None:
        """Close all connections."""
        self.broker = None
        for end in self.ends:
            end.close()


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    return BaseExceptionGroup("", [error]).subgroup(kind) is not None


def _told(error: BaseException) -> str:
    """An error in words that are the same in every run."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"
