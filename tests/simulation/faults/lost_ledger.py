"""The ledger is wiped, or restored from a backup, or recovered without need, in the middle of a run (safety rule S9).

Rule: agents that run end, and those that are started again refuse to serve, and delete nothing, until a recovery has
come to its end. That is the real one (`agent.recovery.recovery`), done as docs/operations/recovery.md says, except that
somebody starts agents meanwhile, it may be interrupted, and a frozen agent that was not noticed may wake up later.
Afterwards offsets that the newest snapshot, or what the ledger still has, covers are what they were, and all that was
acknowledged is there, but for transactions: those that were committed by then stay, all others are aborted, and that is
said before.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

from agent.recovery.preconditions import Permissions
from agent.recovery.recovery import recover
from coordinator.ledger.port import LedgerCorrupt, LedgerError, SessionHeld, SnapshotPointer
from coordinator.snapshot import decode_snapshot
from protocol.types import Position
from storage.object_store import StoreError
from storage.refs import INTAKE_PREFIX, REACHED_PREFIX, SNAPSHOT_PREFIX, position_of_key, session_of_key
from tests.simulation.audit.auditor import Auditor
from tests.simulation.clients.clients import Consumer
from tests.simulation.clients.transaction_programs import TransactionWorld
from tests.simulation.cluster.agents import AgentClock, AgentInWorld, Surroundings
from tests.simulation.cluster.ledger import LedgerCopy, SimulatedLedger
from tests.simulation.cluster.links import LATE_SECONDS_MAX, Link
from tests.simulation.cluster.store import SimulatedStore
from tests.simulation.plan import LedgerLoss

COVERED_SECONDS_MAX = 300.0
REFUSAL_SECONDS_MAX = 15.0
RECOVERY_SECONDS_MAX = 400.0
ATTEMPT_SECONDS_MAX = 70.0
"""When a recovery that is interrupted is, at the latest."""
WAKE_SECONDS_MAX = 120.0
STARTS_SECONDS_MAX = 8.0
INTERRUPTED_CHANCE, FROZEN_CHANCE = 0.3, 0.3


class LostLedger:
    """One loss, and the recovery from it."""

    def __init__(
        self,
        around: Surroundings,
        agents: Sequence[AgentInWorld],
        auditor: Auditor,
        consumers: Sequence[Consumer],
        transactions: TransactionWorld,
    ) -> None:
        self._around = around
        self._agents = agents
        self._auditor = auditor
        self._consumers = consumers
        self._transactions = transactions
        self._chance: random.Random = around.chance
        self._clock = AgentClock(around.loop, around.wall_ms, started_s=0.0)
        self._frozen: AgentInWorld | None = None
        around.ledger.on_restart = self._restarted

    async def run(self, topics_at: Position) -> None:
        """All of it. `topics_at`: the position by which the topics were created, whose names a snapshot must know."""
        around, server = self._around, self._around.ledger
        backup = await self._until_lossable(topics_at)
        if around.plan.ledger_loss is LedgerLoss.RESTORED and backup is None:
            around.history.note("world", "loses no ledger")
            return
        self._keep_newest_snapshot()
        self._freeze()
        if around.plan.ledger_loss is LedgerLoss.NONE_BUT_RECOVERED:
            server.trusted_s = None
        else:
            server.lose(backup)
            await self._see_refusals()
        async with asyncio.timeout(RECOVERY_SECONDS_MAX):
            await self._recover()
        server.trusted_s = around.loop.time()
        for _ in range(5):
            self._start_all()
            await self._clock.sleep(1.0)

    async def _until_lossable(self, topics_at: Position) -> LedgerCopy | None:
        """Wait for a snapshot that knows the topics; then, for a backup to restore, until the bucket tells that the
        ledger has gone on, and every agent knows it: one that is behind takes the older copy for its ledger, and what
        others committed since for leftovers once the grace has passed, which is there so that people notice.
        """
        server = self._around.ledger
        async with asyncio.timeout(COVERED_SECONDS_MAX):
            while server.pointer is None or server.pointer.position < topics_at:
                self._start_all()
                await self._clock.sleep(1.0)
        if self._around.plan.ledger_loss is not LedgerLoss.RESTORED:
            await self._clock.sleep(self._chance.random() * 3)
            return None
        backup, head = server.copied(), server.head.position
        await self._clock.sleep(self._chance.random() * 8)
        for _ in range(20):
            if self._reached() > head and all(a.life is None or a.ledger.head_seen > head for a in self._agents):
                return backup
            await self._clock.sleep(0.5)
        return None

    def _reached(self) -> int:
        """How far the ledger has come, by what the bucket says."""
        told = [0]
        for key in self._around.bucket.objects:
            if key.startswith((SNAPSHOT_PREFIX, REACHED_PREFIX)):
                told.append(position_of_key(key) or 0)
            elif key.startswith(INTAKE_PREFIX):
                told.append(session_of_key(key) or 0)
        return max(told)

    def _freeze(self) -> None:
        """Perhaps there is one that nobody finds."""
        if self._chance.random() >= FROZEN_CHANCE:
            return
        agent = self._chance.choice(self._agents)
        if agent.life is not None:
            self._frozen, life = agent, agent.life
            life.pause()
            wake_s = self._chance.random() * WAKE_SECONDS_MAX
            self._around.loop.call_later(wake_s, life.resume, context=self._around.outside)

    async def _see_refusals(self) -> None:
        """Whatever starts agents again does so."""
        around = self._around
        end_s = around.loop.time() + REFUSAL_SECONDS_MAX
        while around.loop.time() < end_s:
            self._start_all()
            await self._clock.sleep(1.0)
        for agent in self._agents:
            if agent.broker is not None and agent is not self._frozen:
                around.history.violation(f"{agent.name} serves though its ledger is lost (S9)")

    def _start_all(self) -> None:
        for agent in self._agents:
            agent.start()

    def _stop_all(self) -> None:
        for agent in self._agents:
            if agent is not self._frozen:
                agent.crash()

    async def _recover(self) -> None:
        """Again and again until it is done; agents that are found alive are stopped."""
        permissions = Permissions(is_forced=self._around.plan.ledger_loss is LedgerLoss.NONE_BUT_RECOVERED)
        ledger = SimulatedLedger(self._around.ledger, self._link("ledger"))
        store = SimulatedStore(self._around.bucket, self._link("store"), self._chance)
        self._stop_all()
        limit_s = self._chance.random() * ATTEMPT_SECONDS_MAX if self._chance.random() < INTERRUPTED_CHANCE else None
        while True:
            self._keep_newest_snapshot()
            ledger.reopen()
            somebody = asyncio.create_task(self._start_some())
            try:
                async with asyncio.timeout(limit_s):
                    await ledger.identity()
                    report = await recover(ledger, store, self._clock, permissions, store_timeout_s=LATE_SECONDS_MAX)
            except LedgerCorrupt:
                raise
            except (LedgerError, StoreError, TimeoutError) as error:
                self._around.history.note("operator", "tries again", f"{type(error).__name__}")
                if isinstance(error, SessionHeld) and self._around.plan.ledger_loss is LedgerLoss.NONE_BUT_RECOVERED:
                    # The refusal names who holds it: an agent that serves on a sound ledger, and may keep house.
                    self._frozen = None
                    self._around.bucket.snapshot_kept = ""
                self._stop_all()
                limit_s = None
                await self._clock.sleep(2.0)
            else:
                lost = [*report.missing, *(key for key, _ in report.damaged)]
                if lost or report.is_carried_out:
                    break
                # Transactions are lost, or may be; that is known, as docs/operations/recovery.md says.
                permissions = replace(permissions, is_loss_accepted=True)
            finally:
                somebody.cancel()
        if lost:
            self._around.history.violation(f"the recovery lacks {lost[:3]}: somebody deleted it (S9)")
        if self._transactions.lost_count and not permissions.is_loss_accepted:
            self._around.history.violation("the recovery drops transactions that were committed, and says nothing (S9)")

    def _keep_newest_snapshot(self) -> None:
        """Whoever deletes it deletes what a recovery begins from. Of a lost ledger it is the one before the loss."""
        bucket, pointer = self._around.bucket, self._around.ledger.pointer
        if not bucket.snapshot_kept:
            assert pointer is not None, "a snapshot covers the topics"
            bucket.snapshot_kept = pointer.object_key

    async def _start_some(self) -> None:
        """Somebody who does not know that agents must stay away."""
        while True:
            await self._clock.sleep(10.0 + self._chance.random() * STARTS_SECONDS_MAX)
            self._chance.choice(self._agents).start()

    def _restarted(self, pointer: SnapshotPointer, head: Position) -> None:
        """The incarnation begins: judge by what was true before, and go on from what is true now."""
        around, truth = self._around, self._around.ledger.truth
        ends_at = truth.ends_at
        assert ends_at is not None, "they are kept"
        snapshots = [position_of_key(key) for key in around.bucket.objects if key.startswith(SNAPSHOT_PREFIX)]
        covered = max(position for position in [*snapshots, head] if position in ends_at)
        kept = ends_at[Position(covered)]
        truth.restart(decode_snapshot(around.bucket.objects[pointer.object_key].payload), around.loop.time())
        now = ends_at[pointer.position]
        around.history.note("operator", "recovered", f"{covered} {kept} {now}")
        around.bucket.snapshot_kept = ""
        if any(now.get(place, 0) < end for place, end in kept.items()):
            around.history.violation(f"logs ended at {kept} at {covered}, and at {now} after the recovery (S9)")
        self._auditor.recovered(kept)
        self._transactions.recovered(truth.state, Position(covered), kept)
        if self._transactions.lost_count:
            around.history.note("operator", "loses transactions", str(self._transactions.lost_count))
        for consumer in self._consumers:
            for place, position in consumer.positions.items():
                consumer.positions[place] = min(position, kept[place])

    def _link(self, server: str) -> Link:
        around = self._around
        return Link(
            name=f"operator/{server}",
            loop=around.loop,
            chance=around.chance,
            history=around.history,
            outside=around.outside,
            delay_s=around.plan.delay_s,
            timeout_s=10.0,
        )
