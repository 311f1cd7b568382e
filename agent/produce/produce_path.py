"""From checked record batches to acknowledged offsets: gather, put, commit, answer.

Rule: nothing is acknowledged before its ledger entry is applied. Puts overlap; commits are submitted in the order in
which the intakes were taken, so that one producer's batches never overtake each other within this agent. An error
always has base offset -1. An intake gets its place in the bucket once this agent's session is in the ledger (safety
rule S9); one that is put under a session which was lost before its commit is answered as unknown (safety rule S1).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple, Protocol, cast

from agent.cache.chunk_cache import ChunkCache, ServedChunk
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.entry_objects import UncommittedObjects
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.supervisor import begin_in
from agent.runtime.yielding import inline_or_in_thread
from coordinator.commands.commands import BatchColumns, ChunkColumns, ChunksCommitted, CommitChunks, Outcome, Refused
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.chunk_index import ChunkRef
from protocol.errors import ErrorCode
from protocol.limits import (
    CHEAP_OBJECT_BYTES_TARGET,
    CHUNKS_KEPT_PER_INTAKE_MAX,
    INTAKE_BUFFER_BYTES_MAX,
    INTAKE_OBJECT_BYTES_ENOUGH,
    INTAKE_OBJECT_BYTES_TARGET,
    INTAKE_PAUSE_SHARE,
    INTAKE_PUTS_IN_FLIGHT_MAX,
    ROWS_PER_TURN,
)
from protocol.records.batch import patch_offsets, set_log_append_time
from protocol.types import NO_TIMESTAMP, ObjectNumber, PartitionIndex, SessionId
from storage.batcher import Batcher, BatchGroup, BatchLimits, SealedIntake, TicketRows
from storage.gc_plan import EntryFate
from storage.object_store import ObjectStore, StoreError, StoreFull

log = logging.getLogger(__name__)

NO_OFFSET = -1
TRANSACTION_ERRORS = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.transaction_abortable,
        ErrorCode.policy_violation,
    }
)
"""Why a transactional batch may not be written. Kafka asks its coordinator first, and then says nothing of the log."""


class Acknowledgement(NamedTuple):
    """The answer to one partition of a Produce request. With an error the base offset is -1."""

    error_code: ErrorCode
    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_TIMESTAMP
    log_start: int = NO_OFFSET
    error_message: str | None = None
    rows_refused: tuple[int, ...] = ()
    """The records at fault, counted from 0 in their batch, where it is some of them."""


class ProduceTicket(Protocol):
    """Who waits for one group's answer: `storage.batcher` carries it along, this module settles it, once."""

    def settle(self, acknowledgement: Acknowledgement) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Flush:
    """An intake on its way: sealed under a session and put, then committed when it is the oldest."""

    gathered: Batcher
    intake: SealedIntake | None = None
    """Once it was put, or could not be."""
    error: StoreError | None = None


@dataclass(slots=True, kw_only=True)
class _Answering:
    """An intake whose groups are being told what became of them."""

    intake: SealedIntake
    answer_of: Callable[[TicketRows], Acknowledgement]
    answered_count: int = 0


class ProducePath:
    """The agent's intake. `add` is synchronous; the group's ticket is settled later, in any order.

    Where a put is cheap (the embedded store) the intake is sealed when no put is on its way and the loop has come
    round without further records: requests that clients sent together share one flush, none waits for a timer, and
    one flush is put while the one before it is committed.
    Where it is not (S3), a full object and age decide, and a pause in what comes once there is enough for an object:
    fewer requests where much comes, and no waiting where everybody waits for an answer (ADR 8).
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        is_bucket_ours: Callable[[], Awaitable[bool]],
        writer: LedgerWriter,
        metadata: ApplyLoop,
        cache: ChunkCache,
        clock: Clock,
        metrics: Metrics,
        tasks: asyncio.TaskGroup,
        flush_interval_ms: int,
        is_store_cheap: bool,
    ) -> None:
        self._store = store
        self._uncommitted = UncommittedObjects(
            store=store, metadata=metadata, writer=writer, is_bucket_ours=is_bucket_ours, metrics=metrics
        )
        self._writer = writer
        self._metadata = metadata
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._flush_interval_s = flush_interval_ms / 1000
        self._pause_s = self._flush_interval_s * INTAKE_PAUSE_SHARE
        self._is_store_cheap = is_store_cheap
        bytes_target = CHEAP_OBJECT_BYTES_TARGET if is_store_cheap else INTAKE_OBJECT_BYTES_TARGET
        self._limits = BatchLimits(age_ns_max=flush_interval_ms * 1_000_000, object_bytes_target=bytes_target)
        self._batcher = Batcher(self._limits)
        self._flushes: deque[_Flush] = deque()
        self._answering: deque[_Answering] = deque()
        self._unsettled_count = 0
        self._number_next = 0
        self._session = writer.session
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._batches_seen = 0
        self._bytes_held = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_drained = asyncio.Event()
        self._is_drained.set()

    @property
    def bytes_held(self) -> int:
        """Bytes accepted and not yet acknowledged."""
        return self._bytes_held

    async def wait_for_room(self, seconds_max: float) -> bool:
        """Whether the intake takes more, within `seconds_max`: beyond its bound requests wait (back-pressure)."""
        if self._has_room.is_set():
            return True
        try:
            async with self._clock.timeout(seconds_max):
                await self._has_room.wait()
        except TimeoutError:
            return False
        return True

    def add(self, group: BatchGroup) -> None:
        """Take checked batches of one partition. The group's ticket, a `ProduceTicket`, is settled once."""
        if not self._batcher.fits(group):
            self._seal()
        now_ns = self._now_ns()
        self._batcher.add(group, now_ns)
        self._is_drained.clear()
        self._bytes_held += len(group.records)
        if self._bytes_held >= INTAKE_BUFFER_BYTES_MAX:
            self._has_room.clear()
        self._schedule(now_ns)

    async def drain(self) -> None:
        """Return once everything that was taken is acknowledged or refused."""
        self._seal_open()
        await self._is_drained.wait()

    def _schedule(self, now_ns: int | None = None) -> None:
        """Decide when the open intake is sealed; called whenever it or what is on its way has changed."""
        if self._batcher.is_empty:
            return
        now_ns = self._now_ns() if now_ns is None else now_ns
        if self._batcher.should_seal(now_ns) is not None and self._may_start():
            self._seal()
        elif not self._is_store_cheap:
            self._set_timers()
        elif self._timer is None and not self._flushes:
            self._batches_seen = self._batcher.batch_count
            self._timer = asyncio.get_running_loop().call_soon(self._seal_when_quiet)

    def _set_timers(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self._flush_interval_s, self._seal_open)
        if self._pause_timer is None and self._batcher.record_bytes >= INTAKE_OBJECT_BYTES_ENOUGH:
            self._batches_seen = self._batcher.batch_count
            self._pause_timer = loop.call_later(self._pause_s, self._seal_after_pause)

    def _seal_after_pause(self) -> None:
        """Seal unless more came since the timer was set."""
        self._pause_timer = None
        if self._batcher.batch_count != self._batches_seen:
            self._schedule()
        else:
            self._seal_open()

    def _seal_when_quiet(self) -> None:
        """Seal unless more came since the loop was last here: whoever was just answered is about to send again."""
        self._timer = None
        if self._batcher.batch_count != self._batches_seen:
            self._schedule()
        else:
            self._seal_open()

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * 1_000_000_000)

    def _cancel_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _may_start(self) -> bool:
        return len(self._flushes) < INTAKE_PUTS_IN_FLIGHT_MAX

    def _seal_open(self) -> None:
        self._cancel_timers()
        if not self._batcher.is_empty and self._may_start():
            self._seal()

    def _seal(self) -> None:
        self._cancel_timers()
        flush = _Flush(gathered=self._batcher)
        self._batcher = Batcher(self._limits)
        self._flushes.append(flush)
        self._unsettled_count += 1
        begin_in(self._tasks, self._put(flush))  # an agent that is ending puts nothing and acknowledges nothing

    def _next_number(self, session: SessionId) -> ObjectNumber:
        if session != self._session:
            self._session, self._number_next = session, 0
        self._number_next += 1
        return ObjectNumber(self._number_next - 1)

    async def _put(self, flush: _Flush) -> None:
        session = await self._writer.until_live()
        gathered, number = flush.gathered, self._next_number(session)
        intake = await inline_or_in_thread(gathered.batch_count, gathered.seal, session=session, number=number)
        began_s = self._clock.monotonic_s()
        try:
            await self._store.put(intake.key, intake.parts)
        except StoreError as error:
            # A full disk refuses every object for as long as it is full, and is logged where it is found.
            level = logging.DEBUG if isinstance(error, StoreFull) else logging.WARNING
            log.log(level, "an intake object could not be put", extra={"key": intake.key, "reason": str(error)})
            flush.error = error
        self._metrics.intake_objects.inc()
        self._metrics.intake_object_bytes.observe(intake.object_bytes)
        self._metrics.intake_flush_duration_seconds.observe(self._clock.monotonic_s() - began_s)
        flush.intake = intake
        while self._flushes and (oldest := self._flushes[0].intake) is not None:
            self._commit(oldest, self._flushes.popleft().error)
        self._schedule()

    def _commit(self, intake: SealedIntake, error: StoreError | None) -> None:
        if error is not None:
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.request_timed_out))
            return
        outcome = self._writer.propose(commit_command(intake, self._metadata.state.rules_version))
        outcome.add_done_callback(lambda future: self._settle(intake, future))

    def _settle(self, intake: SealedIntake, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or isinstance(future.exception(), OutcomeUnknown):
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.not_leader_or_follower))
            return
        outcome = future.result()
        if not isinstance(outcome, ChunksCommitted):
            log.warning("a commit was refused", extra={"key": intake.key, "outcome": str(outcome)})
            if isinstance(outcome, Refused):  # never proposed, or seen applied as rejected (S6)
                # Where the agent ends, it stays to the end of its session, for the garbage collector.
                begin_in(self._tasks, self._uncommitted.settle(intake.session, EntryFate.REJECTED, (intake.key,)))
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.not_leader_or_follower))
            return
        try:
            self._count(intake, outcome)
            self._keep_in_cache(intake, outcome)  # before the fetches look that the same entry wakes
        finally:
            self._answer(intake, lambda place: self._acknowledgement(intake, outcome, place))

    def _acknowledgement(self, intake: SealedIntake, outcome: ChunksCommitted, place: TicketRows) -> Acknowledgement:
        """The answer for one group: its first error, else its first offset."""
        batches = slice(place.batch_first, place.batch_first + place.batch_count)
        failed = next(filter(None, outcome.error_codes[batches]), None)
        if failed is not None:
            error_code = ErrorCode(failed)
            is_of_transaction = any(intake.batch_is_transactional[batches]) and error_code in TRANSACTION_ERRORS
            log_start = NO_OFFSET if is_of_transaction else outcome.log_start[place.chunk]
            return Acknowledgement(error_code=error_code, log_start=log_start)
        base_offset = outcome.base_offsets[place.batch_first]
        append_time_ms = outcome.append_time_ms[place.chunk]
        if base_offset == NO_OFFSET:  # it waits for its commit
            append_time_ms = outcome.waiting_append_time_ms.get(place.batch_first, NO_TIMESTAMP)
        elif append_time_ms != NO_TIMESTAMP:
            append_time_ms = self._stamped(intake, place.chunk, base_offset)
        return Acknowledgement(
            error_code=ErrorCode.none,
            base_offset=base_offset,
            append_time_ms=append_time_ms,
            log_start=outcome.log_start[place.chunk],
        )

    def _stamped(self, intake: SealedIntake, chunk: int, offset: int) -> int:
        """The append time of the record at `offset`: a duplicate is answered with its first copy's, as in Kafka."""
        found = self._locate(intake, chunk, offset)
        return NO_TIMESTAMP if found is None else found.append_time_ms

    def _locate(self, intake: SealedIntake, chunk: int, offset: int) -> ChunkRef | None:
        """Where `offset` of a chunk's partition is now; None if its topic is gone or its record was dropped."""
        partition = self._metadata.state.partition(
            intake.topic_ids[intake.chunk_topics[chunk]], PartitionIndex(intake.chunk_partitions[chunk])
        )
        row = None if partition is None else partition.index.locate(offset)
        return None if partition is None or row is None else partition.index.row(row)

    def _count(self, intake: SealedIntake, outcome: ChunksCommitted) -> None:
        errors = outcome.error_codes
        for error in filter(None, errors):
            self._metrics.produce_batches_rejected.labels(ErrorCode(error).name).inc()
        accepted = [not error for error in errors]
        self._metrics.produce_bytes.inc(sum(compress(intake.batch_record_bytes, accepted)))
        self._metrics.produce_records.inc(sum(compress(intake.batch_record_counts, accepted)))

    def _answer_all(self, intake: SealedIntake, acknowledgement: Acknowledgement) -> None:
        self._answer(intake, lambda _place: acknowledgement)

    def _answer(self, intake: SealedIntake, answer_of: Callable[[TicketRows], Acknowledgement]) -> None:
        """Tell an intake's groups, in their order and after those of the intakes before it; many take several turns."""
        self._answering.append(_Answering(intake=intake, answer_of=answer_of))
        if len(self._answering) == 1:
            self._answer_some()

    def _answer_some(self) -> None:
        rows_left = ROWS_PER_TURN
        try:
            while self._answering and rows_left:
                oldest = self._answering[0]
                for place in oldest.intake.tickets[oldest.answered_count : oldest.answered_count + rows_left]:
                    oldest.answered_count += 1  # first: a group that cannot be told holds up no others for ever
                    rows_left -= 1
                    cast("ProduceTicket", place.ticket).settle(oldest.answer_of(place))
                if oldest.answered_count == len(oldest.intake.tickets):
                    self._answering.popleft()
                    self._release(oldest.intake)
        finally:
            if self._answering:
                asyncio.get_running_loop().call_soon(self._answer_some)

    def _release(self, intake: SealedIntake) -> None:
        """An intake is settled: let in what waited for room, and seal what gathered meanwhile."""
        self._bytes_held -= sum(intake.batch_record_bytes)
        self._unsettled_count -= 1
        if self._bytes_held < INTAKE_BUFFER_BYTES_MAX:
            self._has_room.set()
        self._schedule()
        if self._unsettled_count == 0 and self._batcher.is_empty:
            self._is_drained.set()

    def _keep_in_cache(self, intake: SealedIntake, outcome: ChunksCommitted) -> None:
        """Keep what was just written for the consumers that are about to ask for it.

        The copy joins what lies scattered over receive buffers, which are let go, and takes the real offsets. Of very
        many chunks the rest is read from the store: the loop would stand still for too long.
        """
        parts = iter(intake.parts[1:])
        batch = 0
        for chunk, batch_count in enumerate(intake.chunk_batch_counts[:CHUNKS_KEPT_PER_INTAKE_MAX]):
            batch_end = batch + batch_count
            chunk_bytes = sum(intake.batch_record_bytes[batch:batch_end])
            copied = bytearray(chunk_bytes)
            position = 0
            while position < chunk_bytes:
                part = next(parts)
                copied[position : position + len(part)] = part
                position += len(part)
            self._keep_chunk(intake, outcome, chunk, batch, batch_end, copied)
            batch = batch_end

    def _keep_chunk(
        self, intake: SealedIntake, outcome: ChunksCommitted, chunk: int, batch: int, batch_end: int, copied: bytearray
    ) -> None:
        offset = outcome.base_offsets[batch]
        if any(outcome.error_codes[batch:batch_end]):
            return
        ref = self._locate(intake, chunk, offset)
        stored = None if ref is None else self._metadata.state.objects.get(ref.object_id)
        # A duplicate's first copy lies elsewhere, and its bytes need not be the same.
        if (
            ref is None
            or stored is None
            or stored.key != intake.key
            or ref.byte_first != intake.chunk_byte_firsts[chunk]
        ):
            return
        if ref.offset_first != offset or ref.byte_count != len(copied):
            return
        if patch_offsets(copied, offset) != ref.offset_end:
            return
        if outcome.append_time_ms[chunk] != NO_TIMESTAMP:
            set_log_append_time(copied, outcome.append_time_ms[chunk])
        self._cache.put(ref, ServedChunk(copied))


def commit_command(intake: SealedIntake, rules_version: int) -> CommitChunks:
    """The command that makes a sealed intake true, as far as the form of the rules in force has a place for it."""
    return CommitChunks(
        object_session=intake.session,
        object_number=intake.number,
        object_bytes=intake.object_bytes,
        topic_ids=intake.topic_ids,
        chunks=ChunkColumns(
            topic=intake.chunk_topics,
            partition=intake.chunk_partitions,
            byte_first=intake.chunk_byte_firsts,
            batch_count=intake.chunk_batch_counts,
        ),
        batches=BatchColumns(
            record_bytes=intake.batch_record_bytes,
            record_count=intake.batch_record_counts,
            max_timestamp=intake.batch_max_timestamps,
            producer_id=intake.batch_producer_ids,
            producer_epoch=intake.batch_producer_epochs,
            base_sequence=intake.batch_base_sequences,
            is_transactional=intake.batch_is_transactional,
        ),
        batch_crcs=intake.batch_crcs if rules_version >= RULES_CHECKED_STORAGE else b"",
    )
