"""Compares what the running agents computed: one whose state differs from most others' stops serving (safety rule S3).

An entry asks, every agent freezes its state behind that very append (`Follower.frozen`), computes the digest in a
thread, says it by another entry, and judges itself by what all said (`coordinator.apply.digest_comparison`, which tells
why so). A snapshot is such a state too: the maintenance leader publishes none that was not compared first, so what one
agent alone computed never takes the place of the entries. Without a snapshot that is due, it asks every few minutes
while entries come.

Rule: an agent that differs ends with an error, drains nothing and writes nothing more of what it computed.
"""

import asyncio
import logging
import math
from dataclasses import dataclass

from agent.ledger.apply_loop import ApplyLoop, FrozenState
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
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

_SAID = b""
REMEDY = "docs/operations/troubleshooting.md, 'An agent stopped because its state differs'"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The digest that this agent computed."""

    position: Position
    digest: bytes


class CorruptionCheck:
    """Every agent has one."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        self._metrics = metrics
        self._looking = asyncio.Lock()
        self._own: _Own | None = None
        self._is_settled = False
        self._waiting_count = 0
        self._kept: FrozenState | None = None
        """The state that `_own` is about, while somebody waits to publish it."""
        self._entries_compared = metadata.entries_applied_count
        self._compared_s = clock.monotonic_s()
        self._company_s = -math.inf
        """When this agent saw others last."""

    async def run(self) -> None:
        """Say what this agent computed whenever it is asked, for ever; raise `LedgerCorrupt` where it differs."""
        while True:
            await self.look()
            if self._is_due:
                await self.agreed()
            await self._clock.sleep(DIGEST_LOOK_INTERVAL_S)

    @property
    def _is_due(self) -> bool:
        return (
            self._maintenance_leader.is_leader
            and len(self._metadata.state.sessions) > 1
            and self._metadata.entries_applied_count > self._entries_compared
            and self._clock.monotonic_s() - self._compared_s >= DIGEST_COMPARISON_INTERVAL_S
        )

    async def agreed(self) -> FrozenState | None:
        """The state at a position from now on, as all agents computed it, or None where they do not agree.

        An agent that says nothing for `DIGEST_WAIT_SECONDS_MAX`, although its session lives, does not hold it up: then
        it is enough that most said the same (`coordinator.apply.digest_comparison.may_be_published`). An agent that is
        alone asks nobody; not at once where it was not: others that are cut off for a moment would have spoken against
        it. Raises as `look` does, and `OutcomeUnknown`.
        """
        if self._is_alone():
            is_left = self._clock.monotonic_s() - self._company_s < DIGEST_ALONE_SECONDS_MIN
            return None if is_left else await self._metadata.freeze()
        self._waiting_count += 1
        try:
            shape = snapshot_shape(self._metadata.state.rules_version)
            if not isinstance(await self._writer.propose(CompareDigest(shape=shape)), Done):
                return None
            return await self._wait()
        finally:
            self._waiting_count -= 1
            if not self._waiting_count:
                self._kept = None
            # Its own entries are no reason to compare again.
            self._entries_compared = self._metadata.entries_applied_count
            self._compared_s = self._clock.monotonic_s()

    async def _wait(self) -> FrozenState | None:
        """Until the comparison is settled; one that took its place meanwhile is as good."""
        deadline_s = self._clock.monotonic_s() + DIGEST_WAIT_SECONDS_MAX
        while True:
            await self.look()
            is_late = self._clock.monotonic_s() >= deadline_s
            found = self._found()
            if found is not None and self._kept is not None:
                comparison, own = found
                match judge(comparison, own):
                    case DigestVerdict.AGREED | DigestVerdict.OTHERS_DIFFER:
                        return self._kept
                    case DigestVerdict.OPEN if not is_late:
                        pass
                    case DigestVerdict.OPEN | DigestVerdict.INCOMPLETE:
                        return self._kept if self._is_enough(comparison, own) else None
                    case _:
                        return None
            elif is_late:
                return None
            await self._clock.sleep(DIGEST_LOOK_INTERVAL_S)

    def _is_enough(self, comparison: DigestComparison, own: bytes) -> bool:
        is_enough = may_be_published(comparison, own)
        log.warning(
            "not every agent said what it computed",
            extra={
                "position": comparison.position,
                "agents": [self._name(session) for session, said in comparison.digests.items() if said is None],
                "is_snapshot_taken": is_enough,
            },
        )
        return is_enough

    async def look(self) -> None:
        """Say what was asked for since the last look, and judge. Raises `LedgerCorrupt` where this agent differs.

        An agent that was not there yet when the others were asked says nothing, and what they said is no verdict on it.
        """
        async with self._looking:
            self._is_alone()
            taken = await self._metadata.take_frozen()
            if taken is None or self._writer.session not in taken[0].digests:
                return
            comparison, frozen = taken
            # A version of this program with other fields in its snapshots gives the same state another digest.
            if frozen is not None and comparison.shape == snapshot_shape(frozen.frozen.rules_version):
                digest = await run_in_thread(frozen.frozen.digest)
                self._own, self._is_settled = _Own(position=comparison.position, digest=digest), False
                self._kept = frozen if self._waiting_count else None
            if comparison.digests.get(self._writer.session, _SAID) is None:
                own = self._own
                said = own.digest if own is not None and own.position == comparison.position else None
                await self._writer.propose(ReportDigest(position=comparison.position, digest=said))
            found = self._found()
            if found is not None and not self._is_settled:
                self._judge(*found)

    def _is_alone(self) -> bool:
        is_alone = len(self._metadata.state.sessions) <= 1
        if not is_alone:
            self._company_s = self._clock.monotonic_s()
        return is_alone

    def _found(self) -> tuple[DigestComparison, bytes] | None:
        """The newest comparison and what this agent computed for it, where it was asked and did."""
        comparison, own = self._metadata.state.comparison, self._own
        if comparison is None or own is None or own.position != comparison.position:
            return None
        if self._writer.session not in comparison.digests:
            return None
        return comparison, own.digest

    def _judge(self, comparison: DigestComparison, own: bytes) -> None:
        verdict = judge(comparison, own)
        if verdict is DigestVerdict.OPEN:
            return
        self._is_settled = True
        self._metrics.corruption_checks.labels(verdict.value.replace(" ", "_")).inc()
        if verdict in (DigestVerdict.AGREED, DigestVerdict.INCOMPLETE):
            return
        digests = self._digests_text(comparison)
        match verdict:
            case DigestVerdict.OTHERS_DIFFER:
                log.error(
                    f"another agent computed another state than most, and stops (safety rule S3): report it; {REMEDY}",
                    extra={"position": comparison.position, "computed": digests, "most": own.hex()},
                )
            case DigestVerdict.DIVERGED:
                raise LedgerCorrupt(
                    f"this agent computed another state than most: at position {comparison.position} its digest is "
                    f"{own.hex()}, all: {digests} (safety rule S3). It does not serve on; what it computed was in its "
                    "memory alone and is thrown away. Start it again: it loads the last snapshot that was agreed upon. "
                    f"Then report it: {REMEDY}"
                )
            case _:
                raise LedgerCorrupt(
                    f"agents computed different states, and none is that of most: at position {comparison.position} "
                    f"this agent's digest is {own.hex()}, all: {digests} (safety rule S3). Nobody knows who is right, "
                    "so none of them serves on. Start them again: they load the last snapshot and compute again what "
                    f"came after it. Then report it: {REMEDY}"
                )

    def _digests_text(self, comparison: DigestComparison) -> str:
        return ", ".join(
            f"{self._name(session)} {'nothing yet' if said is None else said.hex()}"
            for session, said in sorted(comparison.digests.items())
        )

    def _name(self, session_id: int) -> str:
        live = {int(number): session.name for number, session in self._metadata.state.sessions.items()}
        return live.get(session_id, f"session {session_id} (ended)")
