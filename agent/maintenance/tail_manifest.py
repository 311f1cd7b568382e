"""Writes the tail manifest, in which readers without a broker find the records that are not archived yet.

The maintenance leader writes it whenever its content has changed, at most once in an interval. The state has all of its
content, so a lost manifest loses nothing. Positions of topics: `iceberg_export.tail.planner`.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from agent.bucket.confirmation import BucketNotOurs
from agent.context import AgentContext
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from coordinator.state.state import NO_POSITION
from iceberg_export.tail.manifest import (
    TailManifest,
    TailTopic,
    TailUnreadable,
    decode_manifest,
    encode_changed,
)
from iceberg_export.tail.planner import TailTopics, chunks_each, waiting_chunks
from protocol.limits import (
    ROWS_PER_TURN,
    TAIL_BUSY_SHARE_MAX,
    TAIL_CHECK_SECONDS,
    TAIL_CHUNKS_PER_PARTITION_MAX,
    TAIL_PUT_SECONDS_MAX,
)
from protocol.types import Position
from storage.object_store import ObjectMissing, StoreError, StoreUnavailable
from storage.refs import TAIL_KEY

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_DIGEST = b""


@dataclass(slots=True, kw_only=True)
class _WrittenManifest:
    """The last manifest of this agent, in one epoch as the maintenance leader."""

    epoch: int
    digest: bytes = NO_DIGEST
    """The digest of its content; `NO_DIGEST` where its put has not succeeded."""
    content: bytes = b""
    position: Position = NO_POSITION
    """The newest position at which the state had this content."""
    put_s: float = 0.0
    is_checked: bool = False


class _BuildTime:
    """The CPU time that building a manifest takes.

    CPU time, not elapsed time: on a busy agent a build mostly waits, and that must not make the next one later.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn_began_s = clock.thread_cpu_s()
        self.seconds = 0.0

    async def yield_after(self, rows: int) -> int:
        """Let other tasks run once `rows` is a full turn. Returns the rows of the turn that goes on."""
        if rows < ROWS_PER_TURN:
            return rows
        self.end_turn()
        await self._clock.sleep(0)
        self._turn_began_s = self._clock.thread_cpu_s()
        return 0

    def end_turn(self) -> None:
        """Count the CPU time of a turn at its end; the task waits until its next one."""
        self.seconds += self._clock.thread_cpu_s() - self._turn_began_s

    def measured(self, function: Callable[[], T]) -> T:
        """The result of `function`, whose CPU time counts. Call it in the thread that runs it."""
        self._turn_began_s = self._clock.thread_cpu_s()
        result = function()
        self.end_turn()
        return result


class TailManifests:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(
        self,
        context: AgentContext,
        *,
        maintenance_leader: MaintenanceLeader,
        interval_ms: int,
        chunks_each_max: int = TAIL_CHUNKS_PER_PARTITION_MAX,
    ) -> None:
        """`interval_ms`: 0 writes no manifests. `chunks_each_max`: the limit for one partition."""
        self._store = context.store
        self._ledger = context.ledger
        self._maintenance_leader = maintenance_leader
        self._clock = context.clock
        self._metrics = context.metrics
        self._interval_s = interval_ms / 1000
        self._build_time = self._build_time_before = _BuildTime(context.clock)
        self._chunks_each_max = chunks_each_max
        self._topics = TailTopics()
        self._written: _WrittenManifest | None = None
        self._current_at_s = 0.0
        """The monotonic time at which the written manifest was last known to match the state."""
        context.metrics.tail_manifest_age_seconds.set_function(self._age_s)

    @property
    def jobs(self) -> Sequence[PeriodicJob]:
        """The job that writes the manifest whenever it has changed; none if manifests are turned off."""
        job = PeriodicJob(name="tail manifest", interval_s=lambda: self.pause_s, run_once=self._write_if_reachable)
        return [job] if self._interval_s > 0 else []

    async def _write_if_reachable(self) -> None:
        with suppress(StoreUnavailable, BucketNotOurs, TimeoutError):  # `agent.runtime.outages` reports them
            await self.write_if_changed()

    async def leave(self) -> None:
        """Write a last manifest before this agent's session ends.

        If it is the last agent, readers of the bucket would otherwise miss the commits since the last write.
        """
        if self._interval_s > 0:
            with suppress(StoreError, TimeoutError):  # an outage must not delay the end of the session
                await self.write_if_changed()

    @property
    def pause_s(self) -> float:
        """The pause before the next manifest: it bounds the share of CPU time that building takes."""
        # The shorter of the last two builds counts: one slow build, such as the first, does not delay the next one.
        build_s = min(self._build_time.seconds, self._build_time_before.seconds)
        return max(self._interval_s, build_s / TAIL_BUSY_SHARE_MAX)

    async def write_if_changed(self) -> bool:
        """Write the manifest if its content has changed, or if the bucket has an older one. Returns whether it did.

        Raises `StoreError` and `TimeoutError`: the outcome of the put is unknown, and the next call writes again.
        """
        if not self._maintenance_leader.is_leader:
            self._written, self._topics = None, TailTopics()
            self._build_time = self._build_time_before = _BuildTime(self._clock)
            self._metrics.tail_manifest_truncated_partitions.set(0)
            return False
        if self._written is None or self._written.epoch != self._maintenance_leader.epoch:
            self._written, self._current_at_s = (
                _WrittenManifest(epoch=self._maintenance_leader.epoch),
                self._clock.monotonic_s(),
            )
        written = self._written
        # While the ledger does not move, the bucket gets no requests but one late check.
        if written.digest and self._ledger.state.position == written.position:
            self._current_at_s = self._clock.monotonic_s()
            return await self._check(written)
        began_s = self._clock.monotonic_s()
        self._build_time_before, self._build_time = self._build_time, _BuildTime(self._clock)
        manifest = await self._build(self._build_time)
        content, digest = await run_in_thread(
            self._build_time.measured, lambda: encode_changed(manifest, written.digest)
        )
        self._metrics.tail_manifest_build_duration_seconds.observe(self._clock.monotonic_s() - began_s)
        if content is not None and not await self._put(written, manifest, content, digest):
            return False
        written.position, self._current_at_s = manifest.position, began_s
        return content is not None

    async def _build(self, build_time: _BuildTime) -> TailManifest:
        """The manifest of the current state. Each topic is read in its turn, between requests of clients."""
        began = self._ledger.state
        position, written_ms = began.position, self._clock.now_ms()
        topic_ids = sorted(began.topics)
        waiting: list[int] = []
        turn = 0
        for topic_id in topic_ids:
            counts = waiting_chunks(self._ledger.state, topic_id)
            waiting += counts
            turn = await build_time.yield_after(turn + 1 + len(counts))
        each_max = chunks_each(waiting, each_max=self._chunks_each_max)
        self._metrics.tail_manifest_truncated_partitions.set(sum(count > each_max for count in waiting))
        topics: list[TailTopic] = []
        for topic_id in topic_ids:
            topic = self._topics.topic(self._ledger.state, topic_id, each_max=each_max)
            if topic is not None:
                topics.append(topic)
                turn = await build_time.yield_after(turn + 1 + len(topic.partitions))
        self._topics.forget_others(began.topics)
        build_time.end_turn()
        return TailManifest(
            cluster_id=began.cluster_id,
            incarnation=began.incarnation,
            position=position,
            written_ms=written_ms,
            topics=tuple(topics),
        )

    async def _put(self, written: _WrittenManifest, manifest: TailManifest, content: bytes, digest: bytes) -> bool:
        """Put a manifest. Returns False where this agent may not write."""
        # An agent that may have lost its session could overwrite the manifest of a recovered ledger (safety rule S9).
        if not self._maintenance_leader.is_leader or not self._ledger.is_confirmed:
            return False
        written.digest, written.is_checked, written.put_s = NO_DIGEST, False, self._clock.monotonic_s()
        async with self._clock.timeout(TAIL_PUT_SECONDS_MAX):
            await self._store.put(TAIL_KEY, [content])
        written.digest, written.content, written.put_s = digest, content, self._clock.monotonic_s()
        self._metrics.tail_manifest_bytes.set(len(content))
        self._metrics.tail_manifest_topics.set(len(manifest.topics))
        return True

    async def _check(self, written: _WrittenManifest) -> bool:
        """Some time after the last put, read the manifest once, and write it again if an older one replaced it."""
        # The key is overwritten in place, so a late put (of an earlier leader, or one that was retried or given up) may
        # replace a newer manifest. The next change repairs that; after the last change this check does. Readers compare
        # positions and never go back.
        if written.is_checked or self._clock.monotonic_s() - written.put_s < TAIL_CHECK_SECONDS:
            return False
        try:
            stored = await self._store.get(TAIL_KEY)
        except ObjectMissing:
            stored = b""
        if stored == written.content:
            written.is_checked = True
            return False
        if not self._maintenance_leader.is_leader or not self._ledger.is_confirmed:
            return False
        own = decode_manifest(written.content)
        if _is_newer(stored, own):
            # A newer manifest is of the next leader, or of a recovery, of which this agent will learn.
            written.put_s = self._clock.monotonic_s()
            return False
        log.info(
            "wrote the tail manifest again: a late put had replaced it by an older one",
            extra={"position": own.position},
        )
        written.put_s = self._clock.monotonic_s()
        async with self._clock.timeout(TAIL_PUT_SECONDS_MAX):
            await self._store.put(TAIL_KEY, [written.content])
        return True

    def _age_s(self) -> float:
        return self._clock.monotonic_s() - self._current_at_s if self._written is not None else 0.0


def _is_newer(content: bytes, own: TailManifest) -> bool:
    try:
        other = decode_manifest(content)
    except TailUnreadable:
        return False
    return other.cluster_id == own.cluster_id and other.is_newer_than(own)
