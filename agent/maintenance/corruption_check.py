"""Compares the state digests of all agents: an agent whose digest differs from the majority exits (safety rule S3).

1. An agent proposes `CompareDigest`. Every agent freezes its state behind that append (`Follower.frozen`).
2. Each agent computes the digest in a thread and proposes it as `ReportDigest`.
3. Each agent compares its own digest with the reported ones (`coordinator.apply.digest_comparison`, with the reasons).

The maintenance leader compares before every snapshot, and every few minutes while entries come.
"""

import asyncio
import logging
import math
from dataclasses import dataclass

from agent.context import AgentContext
from agent.ledger.apply_loop import FrozenState
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from coordinator.apply.digest_comparison import DigestVerdict, judge, may_be_published
from coordinator.codec.snapshot_wire import snapshot_shape
from coordinator.commands.commands import CompareDigest, Done, ReportDigest
from coordinator.ledger.port import LedgerCorrupt
from coordinator.state.state import DigestComparison
from protocol.limits import (
    DIGEST_ALONE_SECONDS_MIN,
    DIGEST_COMPARISON_INTERVAL_S,
    DIGEST_LOOK_INTERVAL_S,
    DIGEST_WAIT_SECONDS_MAX,
)
from protocol.types import Position

log = logging.getLogger(__name__)

_REPORTED = b""
REMEDY = "docs/operations/troubleshooting.md, 'An agent stopped because its state differs'"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnDigest:
    """The digest that this agent computed, and the position of its comparison."""

    position: Position
    digest: bytes


class CorruptionCheck:
    """Every agent has one."""

    def __init__(self, context: AgentContext, *, maintenance_leader: MaintenanceLeader) -> None:
        self._ledger = context.ledger
        self._apply_loop = context.ledger.apply_loop
        self._maintenance_leader = maintenance_leader
        self._clock = context.clock
        self._metrics = context.metrics
        self._checking = asyncio.Lock()
        self._own: _OwnDigest | None = None
        self._is_judged = False
        self._waiting_count = 0
        self._frozen: FrozenState | None = None
        """The state of `_own`, while a caller of `agreed` waits for it."""
        self._entries_compared = self._apply_loop.entries_applied_count
        self._compared_s = context.clock.monotonic_s()
        self._others_seen_s = -math.inf
        """The monotonic time at which this agent last saw the session of another agent."""

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="corruption check",
            interval_s=DIGEST_LOOK_INTERVAL_S,
            run_once=self._check_and_compare,
            is_first_at_once=True,
        )

    async def _check_and_compare(self) -> None:
        """Answer comparisons, and begin a due one. Raises `LedgerCorrupt` where this agent differs."""
        await self.check()
        if self._is_due:
            await self.agreed()

    @property
    def _is_due(self) -> bool:
        return (
            self._maintenance_leader.is_leader
            and len(self._ledger.state.sessions) > 1
            and self._apply_loop.entries_applied_count > self._entries_compared
            and self._clock.monotonic_s() - self._compared_s >= DIGEST_COMPARISON_INTERVAL_S
        )

    async def agreed(self) -> FrozenState | None:
        """The state at a position from now on, as all agents computed it; None where they do not agree in time.

        Raises as `check` does, and `OutcomeUnknown`.
        """
        if self._is_alone():
            # Agents that were cut off a moment ago might differ from this one: wait until they are back, or until it is
            # clear that they are gone (safety rule S3).
            is_newly_alone = self._clock.monotonic_s() - self._others_seen_s < DIGEST_ALONE_SECONDS_MIN
            return None if is_newly_alone else await self._apply_loop.freeze()
        self._waiting_count += 1
        try:
            shape = snapshot_shape(self._ledger.state.rules_version)
            if not isinstance(await self._ledger.propose(CompareDigest(shape=shape)), Done):
                return None
            return await self._wait()
        finally:
            self._waiting_count -= 1
            if not self._waiting_count:
                self._frozen = None
            # The entries of the comparison itself are no reason for another one.
            self._entries_compared = self._apply_loop.entries_applied_count
            self._compared_s = self._clock.monotonic_s()

    async def _wait(self) -> FrozenState | None:
        """Wait until a comparison has a verdict: this one, or a newer one that replaced it, which is as good."""
        deadline_s = self._clock.monotonic_s() + DIGEST_WAIT_SECONDS_MAX
        while True:
            await self.check()
            is_late = self._clock.monotonic_s() >= deadline_s
            current = self._current()
            if current is not None and self._frozen is not None:
                comparison, own = current
                match judge(comparison, own):
                    case DigestVerdict.AGREED | DigestVerdict.OTHERS_DIFFER:
                        return self._frozen
                    case DigestVerdict.OPEN if not is_late:
                        pass
                    # A live agent that reports nothing must not stop snapshots, or the ledger fills up (safety rule
                    # S10). Then equal digests of a majority are enough.
                    case DigestVerdict.OPEN | DigestVerdict.INCOMPLETE:
                        return self._frozen if self._is_enough(comparison, own) else None
                    case _:
                        return None
            elif is_late:
                return None
            await self._clock.sleep(DIGEST_LOOK_INTERVAL_S)

    def _is_enough(self, comparison: DigestComparison, own: bytes) -> bool:
        is_enough = may_be_published(comparison, own)
        log.warning(
            "some agents did not report their state digests in time: read their logs",
            extra={
                "position": comparison.position,
                "agents": [self._name(session) for session, digest in comparison.digests.items() if digest is None],
                "is_snapshot_taken": is_enough,
            },
        )
        return is_enough

    async def check(self) -> None:
        """Report the digest of the newest comparison, and judge it. Raises `LedgerCorrupt` where this agent differs."""
        async with self._checking:
            self._is_alone()
            taken = await self._apply_loop.take_frozen()
            # An agent whose session began after the comparison takes no part in it: the digests of the others say
            # nothing about the state that it has loaded.
            if taken is None or self._ledger.session not in taken[0].digests:
                return
            comparison, frozen = taken
            # Another version of this program may have other fields in its snapshots: the same state has another digest.
            if frozen is not None and comparison.shape == snapshot_shape(frozen.frozen.rules_version):
                digest = await run_in_thread(frozen.frozen.digest)
                self._own, self._is_judged = _OwnDigest(position=comparison.position, digest=digest), False
                self._frozen = frozen if self._waiting_count else None
            if comparison.digests.get(self._ledger.session, _REPORTED) is None:
                own = self._own
                reported = own.digest if own is not None and own.position == comparison.position else None
                # None: this agent cannot take part, so the others do not wait for it.
                await self._ledger.propose(ReportDigest(position=comparison.position, digest=reported))
            current = self._current()
            if current is not None and not self._is_judged:
                self._judge(*current)

    def _is_alone(self) -> bool:
        is_alone = len(self._ledger.state.sessions) <= 1
        if not is_alone:
            self._others_seen_s = self._clock.monotonic_s()
        return is_alone

    def _current(self) -> tuple[DigestComparison, bytes] | None:
        """The newest comparison and this agent's digest for it; None where this agent takes no part or has none yet."""
        comparison, own = self._ledger.state.comparison, self._own
        if comparison is None or own is None or own.position != comparison.position:
            return None
        if self._ledger.session not in comparison.digests:
            return None
        return comparison, own.digest

    def _judge(self, comparison: DigestComparison, own: bytes) -> None:
        verdict = judge(comparison, own)
        if verdict is DigestVerdict.OPEN:
            return
        self._is_judged = True
        self._metrics.corruption_checks.labels(verdict.value.replace(" ", "_")).inc()
        if verdict in (DigestVerdict.AGREED, DigestVerdict.INCOMPLETE):
            return
        digests = self._digests_text(comparison)
        match verdict:
            case DigestVerdict.OTHERS_DIFFER:
                log.error(
                    "the state digest of another agent differs from the majority; that agent exits (safety rule S3): "
                    f"report it; {REMEDY}",
                    extra={"position": comparison.position, "computed": digests, "most": own.hex()},
                )
            # The error ends the agent without draining: nothing of its wrong state may reach the ledger or the bucket.
            case DigestVerdict.DIVERGED:
                raise LedgerCorrupt(
                    f"the state digest of this agent differs from the majority: at position {comparison.position} it "
                    f"is {own.hex()}, all: {digests} (safety rule S3). The agent exits; its state was only in memory. "
                    "Start it again: it loads the last snapshot that the agents agreed on, and the entries after it. "
                    f"Then report it: {REMEDY}"
                )
            case _:
                raise LedgerCorrupt(
                    f"the agents' state digests differ, and none has a majority: at position {comparison.position} "
                    f"this agent's digest is {own.hex()}, all: {digests} (safety rule S3). No agent can know which is "
                    "right, so all of them exit. Start them again: they load the last snapshot and the entries after "
                    f"it. Then report it: {REMEDY}"
                )

    def _digests_text(self, comparison: DigestComparison) -> str:
        return ", ".join(
            f"{self._name(session)} {'nothing yet' if digest is None else digest.hex()}"
            for session, digest in sorted(comparison.digests.items())
        )

    def _name(self, session_id: int) -> str:
        live = {int(number): session.name for number, session in self._ledger.state.sessions.items()}
        return live.get(session_id, f"session {session_id} (ended)")
