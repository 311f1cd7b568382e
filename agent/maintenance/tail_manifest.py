"""Writes the tail manifest, so that readers who have the bucket and no broker find what is not archived yet.

Rule: the maintenance leader writes it whenever what it says has changed, at most once in an interval, and less often
where making it takes long; nothing is asked of the bucket while nothing changes. Topics are gone through some at a
time, so that requests are served meanwhile (`iceberg_export.tail.planner` says what that means for positions). An agent
that may have lost its session writes nothing (safety rule S9).

The key is overwritten in place, so a put that lands late (of a maintenance leader before, or one that was repeated or
given up) may put an older manifest in the place of a newer one. While something changes the next one repairs that;
after the last change the bucket is looked at once more (`TAIL_CHECK_SECONDS`). Readers compare positions, and never go
back. To lose the manifest loses nothing: the state has it all.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from agent.bucket.confirmation import BucketNotOurs
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
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
from storage.object_store import ObjectMissing, ObjectStore, StoreError, StoreUnavailable
from storage.refs import TAIL_KEY

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_DIGEST = b""


@dataclass(slots=True, kw_only=True)
class _WrittenManifest:
    """The manifest that this agent wrote in one term as the maintenance leader."""

    epoch: int
    digest: bytes = NO_DIGEST
    """The digest of its content; none where no put has succeeded."""
    content: bytes = b""
    position: Position = NO_POSITION
    """Up to which it is known to be true."""
    put_s: float = 0.0
    is_checked: bool = False


class _Work:
    """Counts the processor's time that making a manifest takes: on a busy agent or machine it mostly waits, and readers
    are not to be behind for that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn_began_s = clock.thread_cpu_s()
        self.seconds = 0.0

    async def others(self, rows: int) -> int:
        """Let all others have their turn where this one has gone through enough `rows`; how far the next one is."""
        if rows < ROWS_PER_TURN:
            return rows
        self.end_turn()
        await self._clock.sleep(0)
        self._turn_began_s = self._clock.thread_cpu_s()
        return 0

    def end_turn(self) -> None:
        """Count the CPU time of a turn that ends: the task waits until its next one."""
        self.seconds += self._clock.thread_cpu_s() - self._turn_began_s

    def done(self, do: Callable[[], T]) -> T:
        """What it comes to, in whatever thread."""
        self._turn_began_s = self._clock.thread_cpu_s()
        done = do()
        self.end_turn()
        return done


class TailManifests:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        clock: Clock,
        metrics: Metrics,
        interval_ms: int,
        chunks_each_max: int = TAIL_CHUNKS_PER_PARTITION_MAX,
    ) -> None:
        """`interval_ms`: 0 writes none. `chunks_each_max`: of one partition, at most."""
        self._store = store
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_ms / 1000
        self._work = self._work_before = _Work(clock)
        self._chunks_each_max = chunks_each_max
        self._topics = TailTopics()
        self._written: _WrittenManifest | None = None
        self._true_s = 0.0
        metrics.tail_manifest_age_seconds.set_function(self._age_s)

    async def run(self) -> None:
        """Write whenever there is something new, for ever; return at once where none is wanted."""
        while self._interval_s > 0:
            await self._clock.sleep(self.pause_s)
            with suppress(StoreUnavailable, BucketNotOurs, TimeoutError):  # each is reported for all tasks at once
                await self.look()

    async def leave(self) -> None:
        """Before this agent's session ends: what was committed since the last look is told, too. Where it is the last
        agent, nobody else would, and who reads the bucket then would miss it. An outage is nothing to wait for."""
        if self._interval_s > 0:
            with suppress(StoreError, TimeoutError):  # the session ends all the same
                await self.look()

    @property
    def pause_s(self) -> float:
        """How long to wait before the next manifest is made. One that took long by itself, as the first does, holds up
        nobody: it is made less often where two in a row did."""
        work_s = min(self._work.seconds, self._work_before.seconds)
        return max(self._interval_s, work_s / TAIL_BUSY_SHARE_MAX)

    async def look(self) -> bool:
        """Write the manifest if what it says has changed, or if the bucket has another; returns whether it was written.

        Raises `StoreError` and `TimeoutError`: what became of the put is unknown, and the next look writes again.
        """
        if not self._maintenance_leader.is_leader:
            self._written, self._topics = None, TailTopics()
            self._work = self._work_before = _Work(self._clock)
            self._metrics.tail_manifest_truncated_partitions.set(0)
            return False
        if self._written is None or self._written.epoch != self._maintenance_leader.epoch:
            self._written, self._true_s = (
                _WrittenManifest(epoch=self._maintenance_leader.epoch),
                self._clock.monotonic_s(),
            )
        written = self._written
        if written.digest and self._metadata.state.position == written.position:
            self._true_s = self._clock.monotonic_s()
            return await self._check(written)
        began_s = self._clock.monotonic_s()
        self._work_before, self._work = self._work, _Work(self._clock)
        manifest = await self._build(self._work)
        content, digest = await run_in_thread(self._work.done, lambda: encode_changed(manifest, written.digest))
        self._metrics.tail_manifest_build_duration_seconds.observe(self._clock.monotonic_s() - began_s)
        if content is not None and not await self._put(written, manifest, content, digest):
            return False
        written.position, self._true_s = manifest.position, began_s
        return content is not None

    async def _build(self, work: _Work) -> TailManifest:
        """The manifest of now; every topic as of its turn."""
        began = self._metadata.state
        position, written_ms = began.position, self._clock.now_ms()
        topic_ids = sorted(began.topics)
        waiting: list[int] = []
        turn = 0
        for topic_id in topic_ids:
            counts = waiting_chunks(self._metadata.state, topic_id)
            waiting += counts
            turn = await work.others(turn + 1 + len(counts))
        each_max = chunks_each(waiting, each_max=self._chunks_each_max)
        self._metrics.tail_manifest_truncated_partitions.set(sum(count > each_max for count in waiting))
        topics: list[TailTopic] = []
        for topic_id in topic_ids:
            topic = self._topics.topic(self._metadata.state, topic_id, each_max=each_max)
            if topic is not None:
                topics.append(topic)
                turn = await work.others(turn + 1 + len(topic.partitions))
        self._topics.forget_others(began.topics)
        work.end_turn()
        return TailManifest(
            cluster_id=began.cluster_id,
            incarnation=began.incarnation,
            position=position,
            written_ms=written_ms,
            topics=tuple(topics),
        )

    async def _put(self, written: _WrittenManifest, manifest: TailManifest, content: bytes, digest: bytes) -> bool:
        """Put it, unless that is not this agent's work any more."""
        if not self._maintenance_leader.is_leader or not self._writer.is_confirmed:
            return False
        written.digest, written.is_checked, written.put_s = NO_DIGEST, False, self._clock.monotonic_s()
        async with self._clock.timeout(TAIL_PUT_SECONDS_MAX):
            await self._store.put(TAIL_KEY, [content])
        written.digest, written.content, written.put_s = digest, content, self._clock.monotonic_s()
        self._metrics.tail_manifest_bytes.set(len(content))
        self._metrics.tail_manifest_topics.set(len(manifest.topics))
        return True

    async def _check(self, written: _WrittenManifest) -> bool:
        """Some time after the last put, look once whether the bucket has what was put, and if not put it again."""
        if written.is_checked or self._clock.monotonic_s() - written.put_s < TAIL_CHECK_SECONDS:
            return False
        try:
            found = await self._store.get(TAIL_KEY)
        except ObjectMissing:
            found = b""
        if found == written.content:
            written.is_checked = True
            return False
        if not self._maintenance_leader.is_leader or not self._writer.is_confirmed:
            return False
        mine = decode_manifest(written.content)
        if _is_newer(found, mine):
            # Of an agent that is the maintenance leader by now, or of a recovery: this one will hear of it.
            written.put_s = self._clock.monotonic_s()
            return False
        log.info("the bucket had an older tail manifest: written again", extra={"position": mine.position})
        written.put_s = self._clock.monotonic_s()
        async with self._clock.timeout(TAIL_PUT_SECONDS_MAX):
            await self._store.put(TAIL_KEY, [written.content])
        return True

    def _age_s(self) -> float:
        return self._clock.monotonic_s() - self._true_s if self._written is not None else 0.0


def _is_newer(found: bytes, mine: TailManifest) -> bool:
    try:
        other = decode_manifest(found)
    except TailUnreadable:
        return False
    return other.cluster_id == mine.cluster_id and other.is_newer_than(mine)
