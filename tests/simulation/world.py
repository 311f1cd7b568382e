"""One seed from its first callback to its verdict.

Rule: everything that happens follows from the seed. The run has three parts: clients work while faults happen; all
faults end, and within a bounded time everything is acknowledged and everybody reads everything; the bucket is cleaned.
"""

import asyncio
import gc
import math
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from warnings import catch_warnings, simplefilter

from agent.cache import produced_chunks
from agent.config.addresses import read_store_url, store_root
from agent.maintenance import garbage_collector, producer_expiry
from agent.runtime.clock import SystemClock
from coordinator.commands.rules import RULES_NEWEST
from coordinator.configs.topic_configs import TABLE_RETENTION
from coordinator.ledger.port import LedgerCorrupt
from protocol.limits import (
    LEDGER_SESSION_SECONDS,
    PRODUCED_CHUNK_BYTES_MIN,
    PRODUCER_EXPIRY_CHECK_INTERVAL_S,
    TAIL_CHECK_SECONDS,
)
from protocol.records.records import warm_kernels
from protocol.types import SessionId
from storage.refs import TAIL_KEY, session_of_key
from tests.simulation.audit.auditor import Auditor
from tests.simulation.audit.group_auditor import GroupAuditor
from tests.simulation.audit.leaks import leaks, left_by_live_sessions, put_behind_recovery
from tests.simulation.audit.log_starts import LogStarts
from tests.simulation.audit.producer_entries import CHECK_SECONDS, ProducerEntries
from tests.simulation.audit.tables import table_faults
from tests.simulation.audit.transaction_auditor import TransactionAuditor
from tests.simulation.audit.truth import Truth
from tests.simulation.clients.administrators import Administrator, Deleter, Operator
from tests.simulation.clients.clients import ClientWorld, Consumer, IdempotentProducer, PlainProducer, Prober, Rereader
from tests.simulation.clients.group_programs import GroupWorld
from tests.simulation.clients.rights_users import RightsUser
from tests.simulation.clients.security_administrators import SecurityAdministrator
from tests.simulation.clients.table_editors import TableEditor
from tests.simulation.clients.transaction_programs import PLACEMENT, TransactionWorld, flow_ids, placements_of
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.agent_network import AgentNetwork
from tests.simulation.cluster.agent_settings import store_url_of
from tests.simulation.cluster.agents import AgentInWorld, Surroundings
from tests.simulation.cluster.embedded import threads_of_the_world
from tests.simulation.cluster.ledger import LedgerServer
from tests.simulation.cluster.links import LATE_SECONDS_MAX
from tests.simulation.cluster.older_agents import upgrade_one_after_another
from tests.simulation.cluster.store import SimulatedBucket
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.faults.faults import Faults
from tests.simulation.faults.lost_ledger import LostLedger
from tests.simulation.history import History, Violation, logs_in
from tests.simulation.loop import OutOfSteps, SimulatedLoop
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan, draw
from tests.simulation.within import Within
from txn import transitions
from txn.transaction import EPOCH_EXHAUSTED

WALL_MS_FIRST = 1_700_000_000_000
STEPS_MAX = 400_000
START_SECONDS_MAX = 60.0
RECOVERY_SECONDS_MAX = 90.0
"""From the end of the last fault until everything is acknowledged."""
UPGRADE_SECONDS_MAX = 300.0
"""From the end of the last fault until every agent knows the newest rules, and they are in force."""
SETTLE_SECONDS = 10.0
TIMEOUT_SECONDS_MAX = 90.0
"""From the last producer's end until the last transaction has timed out."""
GROUPS_SECONDS_MAX = 60.0
"""From the last record until every group has processed and committed everything."""
READING_SECONDS_MAX = 600.0
CLEANING_SECONDS_MAX = 200.0
TAIL_SECONDS_MAX = TAIL_CHECK_SECONDS + LATE_SECONDS_MAX + SETTLE_SECONDS
LISTED_AGAIN_MS = 60_000
"""A day of the garbage collector (`ENDED_SESSION_LISTED_AGAIN_MS`) in the world: late puts land within half of it."""
DIGEST_SECONDS = 2.0
READ_BYTES = 2_500
TOPIC, STAMPED_TOPIC, PASSING_TOPIC = "orders", "stamped", "passing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a seed came to."""

    seed: int
    plan: Plan
    digest: str
    steps: int
    virtual_s: float
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    counts: dict[str, int]
    records_read: int


Scene = Callable[[ClientWorld], Awaitable[None]]
"""What happens in the place of faults, while clients work."""


def run(seed: int, plan: Plan | None = None, scene: Scene | None = None) -> Verdict:
    """Run one seed. `plan`: instead of what it draws."""
    warm_kernels()  # as a busy agent has them: without, records are checked and encoded in threads
    history = History()
    with _undisturbed(), logs_in(history):
        return _World(seed, history, plan, scene).run()  # nobody keeps it: what is left of it is thrown away in here


class _World:
    def __init__(self, seed: int, history: History, plan: Plan | None, scene: Scene | None) -> None:
        self._seed = seed
        self._scene = scene
        chance = random.Random(seed)
        drawn = draw(chance)
        self.plan = drawn if plan is None else plan
        self.history = history
        self.loop = SimulatedLoop(chance, choice_max=self.plan.choice_max, steps_max=STEPS_MAX)
        self.history.loop = self.loop
        self.loop.on_error = self._bug
        outside = copy_context()
        lease_s = math.inf if self.plan.is_embedded else LEDGER_SESSION_SECONDS
        self._ledger = LedgerServer(loop=self.loop, history=self.history, outside=outside, lease_s=lease_s)
        bucket = SimulatedBucket(
            loop=self.loop,
            history=self.history,
            ledger=self._ledger,
            truth=self._ledger.truth,
            grace_s=self.plan.gc_min_age_s,
            now_ms=self._wall_ms,
            has_clock=self.plan.has_store_clock,
        )
        self._bucket = bucket
        self._around = Surroundings(
            loop=self.loop,
            chance=chance,
            history=self.history,
            outside=outside,
            plan=self.plan,
            ledger=self._ledger,
            bucket=bucket,
            wall_ms=self._wall_ms,
        )
        self._clock = SystemClock()
        self._ledger.truth.on_drain = self._look_at_drain
        self._agents = [AgentInWorld(number, self._around) for number in range(self.plan.agents)]
        self.loop.connect = AgentNetwork(self._around, self._agents).connect
        truth = self._ledger.truth
        self._auditor = Auditor(self.history, truth)
        group_auditor = GroupAuditor(self.history, truth, self.loop.time)
        if self.plan.groups:
            truth.groups = group_auditor.entries
        if self.plan.is_log_trimmed:
            truth.log_starts = LogStarts(history=history, plan=self.plan, now_ms=self._wall_ms, times=self._auditor)
        if self.plan.ledger_loss is not None:
            truth.ends_at = {}
        transactions = self._transactions_of(truth)
        self._clients = ClientWorld(
            around=self._around,
            agents=self._agents,
            auditor=self._auditor,
            groups=group_auditor,
            transactions=transactions,
        )
        self._faults = Faults(self._around, self._agents)
        self._places: list[Place] = [
            (topic, number) for topic in (TOPIC, STAMPED_TOPIC) for number in range(self.plan.partitions)
        ]
        self._transactions = TransactionWorld(self._clients, self._places)
        self._groups = GroupWorld(self._clients, self._places, self._transactions.places)
        names = [f"editor-{number}" for number in range(self.plan.table_editors)]
        self._editors: list[TableEditor | SecurityAdministrator | RightsUser] = [
            TableEditor(self._clients, name, (TOPIC, STAMPED_TOPIC)) for name in names
        ]
        if self.plan.has_security_changes:
            self._editors += [SecurityAdministrator(self._clients), RightsUser(self._clients)]

    def _transactions_of(self, truth: Truth) -> TransactionAuditor | None:
        if self.plan.transactions is None:
            return None
        auditor = TransactionAuditor(
            self.history,
            truth,
            self.loop.time,
            placements=placements_of(self.plan),
            group_ids=flow_ids(self.plan),
            expiration_ms=self.plan.transactions.expiration_ms,
        )
        truth.transactions = auditor.entries
        if self.plan.transactions.producer_expiration_ms:
            truth.producers = ProducerEntries(
                history=self.history,
                topics=placements_of(self.plan),
                expiration_ms=self.plan.transactions.producer_expiration_ms,
            )
        if self.plan.ledger_loss is not None:
            auditor.entries.offsets_at = {}
        return auditor

    def _wall_ms(self) -> int:
        return WALL_MS_FIRST + int(self.loop.time() * 1000)

    def run(self) -> Verdict:
        drawn = self.plan.transactions
        epoch_last = EPOCH_EXHAUSTED if drawn is None else drawn.epoch_last
        check_s = PRODUCER_EXPIRY_CHECK_INTERVAL_S if self._ledger.truth.producers is None else CHECK_SECONDS
        chunk_bytes_min = 0 if self.plan.serves_small_chunks else PRODUCED_CHUNK_BYTES_MIN
        try:
            with (
                threads_of_the_world(),
                patched(transitions, "EPOCH_EXHAUSTED", epoch_last),
                patched(producer_expiry, "PRODUCER_EXPIRY_CHECK_INTERVAL_S", check_s),
                patched(produced_chunks, "PRODUCED_CHUNK_BYTES_MIN", chunk_bytes_min),
            ):
                self.loop.run(self._main())
        except Violation:
            pass
        except OutOfSteps as error:
            self.history.violation(f"out of steps: {error}")
        except BaseExceptionGroup as group:
            if group.split(Violation)[1] is not None:
                raise
        finally:
            for agent in self._agents:
                if agent.machine is not None:
                    agent.machine.remove()
        self.history.loop = None  # so that nothing of the world outlives it
        return Verdict(
            seed=self._seed,
            plan=self.plan,
            digest=self.history.digest,
            steps=self.loop.steps_count,
            virtual_s=self.loop.time(),
            violations=tuple(self.history.violations),
            trace=tuple(self.history.trace),
            counts=dict(self.history.counts),
            records_read=self._auditor.records_read,
        )

    async def _main(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch())
            for agent in self._agents:
                agent.start()
            administrator = Administrator(self._clients, "administrator", PASSING_TOPIC)
            async with self._within(START_SECONDS_MAX, "the topics could not be created"):
                configs = _configs_of(self.plan)
                await administrator.create(TOPIC, self.plan.partitions, configs)
                await administrator.create(
                    STAMPED_TOPIC, self.plan.partitions, (("message.timestamp.type", "LogAppendTime"), *configs)
                )
                for topic, is_at_commit in placements_of(self.plan).items():
                    more = PLACEMENT if is_at_commit else ()
                    await administrator.create(topic, self.plan.partitions, (*more, *configs))
            self._topics_at = self._ledger.truth.state.position
            await self._work(administrator, tasks)
            await self._clean()
            watch.cancel()
            self._keeping.cancel()

    async def _work(self, administrator: Administrator, background: asyncio.TaskGroup) -> None:
        plan = self.plan
        producers = [IdempotentProducer(self._clients, f"producer-{n}", self._places) for n in range(plan.producers)]
        plain = [PlainProducer(self._clients, f"plain-{n}", self._places) for n in range(plan.plain_producers)]
        consumers = self._consumers()
        async with asyncio.TaskGroup() as tasks:
            for_ever = [tasks.create_task(consumer.run()) for consumer in consumers]
            probers = [Prober(self._clients, f"prober-{n}") for n in range(plan.probers)]
            if plan.has_operator:
                for_ever.append(tasks.create_task(Operator(self._clients, (TOPIC, STAMPED_TOPIC)).run()))
            for_ever += [tasks.create_task(prober.run(self._places)) for prober in probers]
            for_ever += [tasks.create_task(monitor.run()) for monitor in self._groups.monitors]
            deleters = [Deleter(self._clients, f"deleter-{n}") for n in range(plan.deleters)]
            for_ever += [tasks.create_task(deleter.run(self._places)) for deleter in deleters]
            for_ever += [tasks.create_task(editor.run()) for editor in self._editors]
            if plan.has_topic_churn:
                for_ever.append(tasks.create_task(administrator.run()))
            senders: list[IdempotentProducer | PlainProducer] = [*producers, *plain]
            for_ever += [tasks.create_task(reader.run()) for reader in self._transactions.readers]
            for_ever += [tasks.create_task(monitor.run()) for monitor in self._transactions.monitors]
            for_ever += [tasks.create_task(operator.run()) for operator in self._transactions.operators]
            transacting = [tasks.create_task(each.run()) for each in self._transactions.programs]
            transacting += [tasks.create_task(each.run()) for each in self._transactions.bystanders]
            for_ever_in_groups = [tasks.create_task(program.run()) for program in self._groups.programs]
            faults = self._begin_faults(tasks)
            upgrade = tasks.create_task(self._upgrade())
            sending = [tasks.create_task(sender.run()) for sender in senders]
            if self._scene is not None:
                await self._scene(self._clients)
            elif plan.ledger_loss is None:
                await self._clock.sleep(plan.seconds)
            else:
                await self._clock.sleep(plan.seconds / 2)
                await self._lose_ledger(faults, consumers)
                faults = self._begin_faults(tasks)
                await self._clock.sleep(plan.seconds / 2)
            for task in faults:
                task.cancel()
            self.history.note("world", "heals")
            self._faults.heal()
            self._keeping = background.create_task(self._faults.keep_up())
            await self._until_upgraded(upgrade)
            self._groups.calm()
            self._transactions.calm()
            for sender in senders:
                sender.is_stopping = True
            async with self._within(RECOVERY_SECONDS_MAX, "producers did not get everything acknowledged"):
                await asyncio.wait(sending)
            self._transactions.stop()
            if transacting:
                async with self._within(RECOVERY_SECONDS_MAX, "transactional producers do not come to their ends"):
                    await asyncio.wait(transacting)
                async with self._within(TIMEOUT_SECONDS_MAX, "some transaction hangs"):
                    await self._transactions.until_decided()
            async with self._within(RECOVERY_SECONDS_MAX, "not every agent takes records"):
                for agent in self._agents:
                    await PlainProducer(self._clients, f"writer to {agent.name}", []).send_to(agent, self._places[0])
            for task in for_ever:
                task.cancel()
            # What was on its way when its sender gave up may still arrive, and become true.
            await self._clock.sleep(LATE_SECONDS_MAX + SETTLE_SECONDS)
            await self._groups.until_through(GROUPS_SECONDS_MAX)
            for task in for_ever_in_groups:
                task.cancel()
        async with self._within(TIMEOUT_SECONDS_MAX, "some transaction of a member hangs"):
            await self._transactions.until_decided()
        async with self._within(READING_SECONDS_MAX, "not everything could be read through every agent"):
            await self._read_everything()
            await self._transactions.read_everything()

    def _consumers(self) -> list[Consumer]:
        consumers = [Consumer(self._clients, f"consumer-{n}", self._places) for n in range(self.plan.consumers)]
        if FaultName.STORE_DAMAGED in self.plan.faults:
            consumers.append(Rereader(self._clients, "rereader", self._places))
        return consumers

    def _look_at_drain(self, session: SessionId) -> None:
        for agent in self._agents:
            if agent.life is not None and agent.broker is not None and agent.broker.session == session:
                agent.life.look_at_drain()

    async def _until_upgraded(self, upgrade: "asyncio.Task[None]") -> None:
        async with self._within(UPGRADE_SECONDS_MAX, "the agents were not upgraded, or their rules not raised"):
            await upgrade
            while self._ledger.truth.state.rules_version < RULES_NEWEST:
                await self._clock.sleep(0.5)

    async def _upgrade(self) -> None:
        if self.plan.has_older_agents:
            await upgrade_one_after_another(self._agents, self.plan.seconds)

    def _begin_faults(self, tasks: asyncio.TaskGroup) -> "list[asyncio.Task[None]]":
        return [tasks.create_task(self._faults.run(name)) for name in self.plan.faults]

    async def _lose_ledger(self, faults: "list[asyncio.Task[None]]", consumers: list[Consumer]) -> None:
        """Nothing else goes wrong meanwhile."""
        for task in faults:
            task.cancel()
        self._faults.heal()
        try:
            await LostLedger(self._around, self._agents, self._auditor, consumers, self._transactions).run(
                self._topics_at
            )
        except (LedgerCorrupt, TimeoutError) as error:
            self.history.violation(f"the cluster cannot be recovered: {type(error).__name__}: {error}")
            raise Violation from error
        self._faults.heal()

    async def _read_everything(self) -> None:
        """Through each agent, from the first offset to the end: the same for all."""
        ends: dict[Place, int] = {}
        self._auditor.settled(self._places)
        for agent in self._agents:
            reader = Consumer(self._clients, f"reader of {agent.name}", self._places)
            for place in self._places:
                end = None
                while end is None:
                    reader.connect_to(agent)
                    end = await reader.end_of(place)
                if ends.setdefault(place, end) != end:
                    self.history.violation(f"{place} ends at {ends[place]} and at {end}, though nothing is written")
            while any(reader.positions[place] < end for place, end in ends.items()):
                reader.stay_with(agent)
                await reader.poll(wait_ms=0, bytes_max=READ_BYTES)
        self._auditor.judge(ends)

    async def _clean(self) -> None:
        """Everything that nobody refers to goes, after its grace and the second look."""
        truth = self._ledger.truth
        end_s = self.loop.time() + CLEANING_SECONDS_MAX
        while self.loop.time() < end_s and (self._orphans() or self._overdue() or self._table_faults()):
            await self._clock.sleep(1.0)
        overdue = self._overdue()
        if overdue:
            self.history.violation(overdue)
        orphans = self._orphans()
        if orphans:
            self.history.violation(f"{len(orphans)} objects are left that nobody refers to, as {orphans[0]} (S6)")
        await self._until_tail_is_current()
        for fault in self._table_faults():
            self.history.violation(fault)
        for editor in self._editors:
            editor.judge()
        self._look_for_leaks()
        missing = sorted(set(truth.state.object_ids) - self._bucket.objects.keys())
        if missing:
            self.history.violation(f"{missing[0]} is referred to and not in the bucket (S6)")

    def _look_for_leaks(self) -> None:
        truth = self._ledger.truth
        self.history.counts["left by live sessions"] += len(left_by_live_sessions(self._bucket, truth))
        leaked = leaks(self._bucket, truth, self._agents, self.loop.time())
        if leaked:
            self.history.violation(f"{len(leaked)} objects that no entry brings in are left, as {leaked[0]} (S6)")

    async def _until_tail_is_current(self) -> None:
        """Whatever landed late: the bucket comes to say what is true, and readers need no broker to know it."""
        end_s = self.loop.time() + TAIL_SECONDS_MAX
        while not self._ledger.truth.tails.is_current(self._bucket.objects[TAIL_KEY].payload):
            if self.loop.time() > end_s:
                self.history.violation(f"the tail manifest is not true within {TAIL_SECONDS_MAX} s")
                return
            await self._clock.sleep(1.0)

    def _table_faults(self) -> list[str]:
        contents = {key: stored.payload for key, stored in self._bucket.objects.items()}
        root = store_root(read_store_url(store_url_of(self.plan)))
        return list(table_faults(self._ledger.truth.state, contents, root))

    def _overdue(self) -> str:
        truth = self._ledger.truth
        kept = "" if truth.log_starts is None else truth.log_starts.overdue(truth.state)
        if kept:
            return f"{kept} keeps what retention should have dropped"
        kept = "" if truth.producers is None else truth.producers.overdue(truth.state)
        return kept or ("" if truth.transactions is None else truth.transactions.overdue(truth.state))

    def _orphans(self) -> list[str]:
        """Objects that nobody refers to: of sessions that are over, or referred to before and not known as released."""
        truth, state = self._ledger.truth, self._ledger.truth.state
        sessions = {key: session_of_key(key) for key in self._bucket.objects if key not in state.object_ids}
        strange = put_behind_recovery(self._bucket, truth, self._ledger.trusted_s)
        return [
            key
            for key, session in sessions.items()
            if (session is not None and session not in state.sessions and key not in strange)
            or (key in truth.referred and key not in state.released and key not in self._bucket.deleted_s)
        ]

    async def _watch(self) -> None:
        """End the run once something is wrong; compare digests now and then (safety rule S3)."""
        while True:
            await self._clock.sleep(0.25)
            if self.history.violations:
                raise Violation
            if int(self.loop.time() * 4) % int(DIGEST_SECONDS * 4) == 0:
                for agent in self._agents:
                    if agent.broker is not None:
                        self._ledger.truth.check_digest(agent.name, agent.broker.state)

    def _within(self, seconds: float, otherwise: str) -> "Within":
        return Within(seconds, lambda: self.history.violation(f"{otherwise} within {seconds} s"))

    def _bug(self, context: dict[str, object]) -> None:
        self.history.violation(f"a bug in a callback: {context.get('exception')!r}")


def _configs_of(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Of topics whose records may go."""
    if not plan.is_log_trimmed:
        return ()
    limits = (("retention.ms", str(plan.retention_ms)), ("retention.bytes", str(plan.retention_bytes)))
    return (*limits, (TABLE_RETENTION, "-1")) if plan.is_table_kept else limits


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing is collected in the middle of a run; what dead agents leave behind is thrown away silently after it."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    gc.disable()
    gc.freeze()  # what was there before need not be looked through after every run, nor later on
    try:
        again = partial(vars(garbage_collector)["plan_sessions"], again_after_ms=LISTED_AGAIN_MS)
        with catch_warnings(), patched(garbage_collector, "plan_sessions", again):
            simplefilter("ignore")
            yield
            gc.collect()
    finally:
        gc.enable()
        sys.unraisablehook = hook
