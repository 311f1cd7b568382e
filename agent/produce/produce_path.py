"""From checked record batches to acknowledged offsets: gather, put, commit, answer.

In: batches of one partition each, gathered into an intake object of many partitions. Out: one `Acknowledgement` for
each group of batches, after the ledger entry that commits the object is applied, never before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import cast

from agent.cache.chunk_cache import ChunkCache, ServedChunk
from agent.context import AgentContext
from agent.ledger.entry_objects import UncommittedObjects
from agent.ledger.ledger_writer import RejectedForRoom
from agent.produce.acknowledgement import NO_OFFSET, Acknowledgement, ProduceTicket
from agent.produce.commit_command import commit_command
from agent.runtime.supervisor import begin_in
from agent.runtime.yielding import inline_or_in_thread
from coordinator.commands.commands import (
    ChunksCommitted,
    CommitChunks,
    Outcome,
    QuotaUse,
    Rejected,
)
from coordinator.commands.rules import RULES_QUOTA_USE
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
from storage.object_store import ObjectToPut, StoreError, StoreFull

log = logging.getLogger(__name__)

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
"""Errors that reject a transactional batch. Kafka checks them at the coordinator, so its answer has no log start."""


@dataclass(slots=True, kw_only=True)
class _Flush:
    """An intake that is being put. It is committed once every older one was committed or has failed."""

    batcher: Batcher
    intake: SealedIntake | None = None
    """Set when its put has ended, with or without an error."""
    error: StoreError | None = None


@dataclass(slots=True, kw_only=True)
class _Answering:
    """An intake whose outcome is known, and whose groups are being answered."""

    intake: SealedIntake
    answer_of: Callable[[TicketRows], Acknowledgement]
    answered_count: int = 0


Admission = Callable[[str], Awaitable[None]]
"""Returns once an intake object with this key may be put; raises the `StoreError` that a put would raise now."""


async def admit_all(_key: str) -> None:
    """An `Admission` for stores that reject what they do not take by themselves."""


class ProducePath:
    """The agent's intake. `add` is synchronous; the group's ticket is settled later, in any order.

    Where a put is cheap (the embedded store), the intake is sealed when no put is in flight and a turn of the event
    loop brought no further records. Requests that arrive together share one flush, and none waits for a timer.
    Where a put is dear (S3), the intake is sealed by size or age, or, with enough for an object, by a pause in the
    arrivals: few requests under load, and no wait where all producers wait for answers (ADR 8).

    Where the ledger takes objects (`JointLedger`), an intake is put by the write that commits it, and no further one is
    sealed for lack of requests before that has ended. An append of other commands takes what there is with it.
    """

    def __init__(
        self,
        context: AgentContext,
        *,
        cache: ChunkCache,
        tasks: asyncio.TaskGroup,
        flush_interval_ms: int,
        is_store_cheap: bool,
        admit: Admission = admit_all,
    ) -> None:
        """`admit` is asked before an intake that no call of the store puts."""
        self._store = context.store
        self._admit = admit
        self._is_joint = context.ledger.takes_objects
        self._joint_writes_count = 0
        """Intakes on their way to the ledger together with their entries."""
        if self._is_joint:
            context.ledger.writer.before_append = self._join_append
        self._uncommitted = UncommittedObjects(
            store=context.store, ledger=context.ledger, is_bucket_ours=context.is_bucket_ours, metrics=context.metrics
        )
        self._ledger = context.ledger
        self._cache = cache
        self._clock = context.clock
        self._metrics = context.metrics
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
        self._session = context.ledger.session
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._batches_seen = 0
        self._bytes_held = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self.quota_uses: Callable[[SessionId], tuple[QuotaUse, ...]] = lambda _: ()
        """The use of quotas for the next entry of a session."""

    @property
    def bytes_held(self) -> int:
        """Bytes accepted and not yet acknowledged."""
        return self._bytes_held

    async def wait_for_room(self, seconds_max: float) -> bool:
        """Wait until the intake takes more (back-pressure); False where it does not within `seconds_max`."""
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
            # Sealed even where INTAKE_PUTS_IN_FLIGHT_MAX puts are in flight: a larger intake would not fit into one
            # ledger entry. INTAKE_BUFFER_BYTES_MAX bounds all intakes together.
            self._seal()
        now_ns = self._now_ns()
        self._batcher.add(group, now_ns)
        self._is_drained.clear()
        self._bytes_held += len(group.records)
        if self._bytes_held >= INTAKE_BUFFER_BYTES_MAX:
            self._has_room.clear()
        self._schedule(now_ns)

    async def drain(self) -> None:
        """Return once every batch that was taken is acknowledged or rejected."""
        self._seal_open()
        await self._is_drained.wait()

    def _schedule(self, now_ns: int | None = None) -> None:
        """Decide when the open intake is sealed; called whenever that intake or the puts in flight have changed."""
        if self._batcher.is_empty:
            return
        now_ns = self._now_ns() if now_ns is None else now_ns
        if self._batcher.should_seal(now_ns) is not None and self._may_start():
            self._seal()
        elif not self._is_store_cheap:
            self._set_timers()
        elif self._timer is None and not self._flushes and not self._joint_writes_count:
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
        """Seal unless more came in the last turn of the loop: a client that was just answered often sends at once."""
        self._timer = None
        if self._batcher.batch_count != self._batches_seen:
            self._schedule()
        else:
            self._seal_open()

    def _join_append(self) -> bool:
        """Seal what there is, since an append is about to begin anyway: its sync covers the intake, too.

        Else an append of other commands would begin without it, and it would wait for the end of that one.
        """
        if self._batcher.is_empty or not self._may_start():
            return False
        self._seal()
        return True

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
        return len(self._flushes) + self._joint_writes_count < INTAKE_PUTS_IN_FLIGHT_MAX

    def _seal_open(self) -> None:
        self._cancel_timers()
        if not self._batcher.is_empty and self._may_start():
            self._seal()

    def _seal(self) -> None:
        self._cancel_timers()
        flush = _Flush(batcher=self._batcher)
        self._batcher = Batcher(self._limits)
        self._flushes.append(flush)
        self._unsettled_count += 1
        begin_in(self._tasks, self._put(flush))  # no task starts in an agent that is ending: nothing is acknowledged

    def _next_number(self, session: SessionId) -> ObjectNumber:
        # An object's key is its session and a number (S6): numbers start again with each session.
        if session != self._session:
            self._session, self._number_next = session, 0
        self._number_next += 1
        return ObjectNumber(self._number_next - 1)

    async def _put(self, flush: _Flush) -> None:
        # The object's key names the session. The ledger has to have it first (S9): a start that finds a session in the
        # bucket beyond the ledger's end takes the ledger for an older copy, and does not go on.
        session = await self._ledger.until_live()
        batcher, number = flush.batcher, self._next_number(session)
        intake = await inline_or_in_thread(batcher.batch_count, batcher.seal, session=session, number=number)
        began_s = self._clock.monotonic_s()
        try:
            if self._is_joint:
                await self._admit(intake.key)
            else:
                await self._store.put(intake.key, intake.parts)
        except StoreError as error:
            # A full disk fails every put until it has space again; `agent.bucket.disk_reserve` logs it once.
            level = logging.DEBUG if isinstance(error, StoreFull) else logging.WARNING
            log.log(
                level,
                "an intake object could not be put; its producers get REQUEST_TIMED_OUT and repeat",
                extra={"key": intake.key, "reason": str(error)},
            )
            flush.error = error
        self._metrics.intake_objects.inc()
        self._metrics.intake_object_bytes.observe(intake.object_bytes)
        if not self._is_joint:
            self._metrics.intake_flush_duration_seconds.observe(self._clock.monotonic_s() - began_s)
        flush.intake = intake
        # Puts end in any order, commits are proposed in the order of sealing (S8): a batch that overtook the one before
        # it would be OUT_OF_ORDER_SEQUENCE_NUMBER.
        while self._flushes and (oldest := self._flushes[0].intake) is not None:
            self._commit(oldest, self._flushes.popleft().error)
        self._schedule()

    def _commit(self, intake: SealedIntake, error: StoreError | None) -> None:
        if error is not None:
            # Nothing is committed without its object. Kafka's clients repeat after REQUEST_TIMED_OUT.
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.request_timed_out))
            return
        rules_version = self._ledger.state.rules_version
        quota_uses = self.quota_uses(intake.session) if rules_version >= RULES_QUOTA_USE else ()
        outcome = self._propose(intake, commit_command(intake, rules_version, quota_uses))
        outcome.add_done_callback(lambda future: self._settle(intake, future))

    def _propose(self, intake: SealedIntake, command: CommitChunks) -> "asyncio.Future[Outcome]":
        """Propose the commit of an intake; where the ledger takes objects, its bytes go with it."""
        if not self._is_joint:
            return self._ledger.propose(command)
        stored = ObjectToPut(key=intake.key, parts=intake.parts, modified_ms=self._clock.now_ms())
        outcome = self._ledger.propose(command, stored)
        self._joint_writes_count += 1
        outcome.add_done_callback(partial(self._end_joint_write, self._clock.monotonic_s()))
        return outcome

    def _end_joint_write(self, began_s: float, _outcome: "asyncio.Future[Outcome]") -> None:
        self._joint_writes_count -= 1
        self._metrics.intake_flush_duration_seconds.observe(self._clock.monotonic_s() - began_s)
        self._schedule()

    def _settle(self, intake: SealedIntake, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or isinstance(future.exception(), OutcomeUnknown):
            # The session was lost: the commit may have been applied or not (S1). After NOT_LEADER_OR_FOLLOWER clients
            # repeat, and an idempotent producer's repeat finds its first copy.
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.not_leader_or_follower))
            return
        outcome = future.result()
        if isinstance(outcome, RejectedForRoom):
            # As where a put fails for want of space: `agent.bucket.disk_reserve` logs the full disk once.
            log.debug("there is no room for an intake object", extra={"key": intake.key, "reason": outcome.reason})
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.request_timed_out))
            return
        if not isinstance(outcome, ChunksCommitted):
            log.warning(
                "the commit of an intake object was rejected; its producers get NOT_LEADER_OR_FOLLOWER and repeat",
                extra={"key": intake.key, "outcome": str(outcome)},
            )
            if isinstance(outcome, Rejected):  # never proposed, or seen applied as rejected: the object is garbage (S6)
                # In an agent that is ending no task starts: the garbage collector deletes it after the session's end.
                begin_in(self._tasks, self._uncommitted.settle(intake.session, EntryFate.REJECTED, (intake.key,)))
            self._answer_all(intake, Acknowledgement(error_code=ErrorCode.not_leader_or_follower))
            return
        try:
            self._count(intake, outcome)
            self._keep_in_cache(intake, outcome)  # now: the same entry wakes fetches, which are about to read it
        finally:
            self._answer(intake, lambda rows: self._acknowledgement(intake, outcome, rows))

    def _acknowledgement(self, intake: SealedIntake, outcome: ChunksCommitted, rows: TicketRows) -> Acknowledgement:
        """The answer for one group: its first error, else its first offset."""
        batches = slice(rows.batch_first, rows.batch_first + rows.batch_count)
        first_error = next(filter(None, outcome.error_codes[batches]), None)
        if first_error is not None:
            error_code = ErrorCode(first_error)
            is_of_transaction = any(intake.batch_is_transactional[batches]) and error_code in TRANSACTION_ERRORS
            log_start = NO_OFFSET if is_of_transaction else outcome.log_start[rows.chunk]
            return Acknowledgement(error_code=error_code, log_start=log_start)
        base_offset = outcome.base_offsets[rows.batch_first]
        append_time_ms = outcome.append_time_ms[rows.chunk]
        if base_offset == NO_OFFSET:  # a batch of a transaction, which gets its offsets at the transaction's commit
            append_time_ms = outcome.waiting_append_time_ms.get(rows.batch_first, NO_TIMESTAMP)
        elif append_time_ms != NO_TIMESTAMP:
            append_time_ms = self._append_time_at(intake, rows.chunk, base_offset)
        return Acknowledgement(
            error_code=ErrorCode.none,
            base_offset=base_offset,
            append_time_ms=append_time_ms,
            log_start=outcome.log_start[rows.chunk],
        )

    def _append_time_at(self, intake: SealedIntake, chunk: int, offset: int) -> int:
        """The append time of the record at `offset`: a duplicate is answered with its first copy's, as in Kafka."""
        ref = self._locate(intake, chunk, offset)
        return NO_TIMESTAMP if ref is None else ref.append_time_ms

    def _locate(self, intake: SealedIntake, chunk: int, offset: int) -> ChunkRef | None:
        """The row of the index that holds `offset` of a chunk's partition; None if topic or record is deleted."""
        partition = self._ledger.state.partition(
            intake.topic_ids[intake.chunk_topics[chunk]], PartitionIndex(intake.chunk_partitions[chunk])
        )
        row = None if partition is None else partition.index.locate(offset)
        return None if partition is None or row is None else partition.index.row(row)

    def _count(self, intake: SealedIntake, outcome: ChunksCommitted) -> None:
        accepted = [not error for error in outcome.error_codes]
        record_bytes = list(compress(intake.batch_record_bytes, accepted))
        self._metrics.produce_batches.inc(len(record_bytes))
        self._metrics.produce_bytes.inc(sum(record_bytes))
        self._metrics.produce_records.inc(sum(compress(intake.batch_record_counts, accepted)))
        self._count_topics(intake, accepted)

    def _count_topics(self, intake: SealedIntake, accepted: list[bool]) -> None:
        """Count the accepted batches by topic; a topic that was deleted meanwhile is left out."""
        totals: dict[int, tuple[int, int]] = {}
        first = 0
        for topic, count in zip(intake.chunk_topics, intake.chunk_batch_counts, strict=True):
            batches = slice(first, first + count)
            first += count
            record_bytes, records = totals.get(topic, (0, 0))
            totals[topic] = (
                record_bytes + sum(compress(intake.batch_record_bytes[batches], accepted[batches])),
                records + sum(compress(intake.batch_record_counts[batches], accepted[batches])),
            )
        for topic, (record_bytes, records) in totals.items():
            known = self._ledger.state.topics.get(intake.topic_ids[topic])
            if known is not None:
                self._metrics.topics_in.count(known.name, record_bytes, records)

    def _answer_all(self, intake: SealedIntake, acknowledgement: Acknowledgement) -> None:
        self._answer(intake, lambda _rows: acknowledgement)

    def _answer(self, intake: SealedIntake, answer_of: Callable[[TicketRows], Acknowledgement]) -> None:
        """Answer an intake's groups in order, after those of older intakes; many groups take several turns."""
        self._answering.append(_Answering(intake=intake, answer_of=answer_of))
        if len(self._answering) == 1:
            self._answer_some()

    def _answer_some(self) -> None:
        rows_left = ROWS_PER_TURN
        try:
            while self._answering and rows_left:
                oldest = self._answering[0]
                for rows in oldest.intake.tickets[oldest.answered_count : oldest.answered_count + rows_left]:
                    # Counted before the answer: where that raises, the groups behind it are answered in the next turn.
                    oldest.answered_count += 1
                    rows_left -= 1
                    cast("ProduceTicket", rows.ticket).settle(oldest.answer_of(rows))
                if oldest.answered_count == len(oldest.intake.tickets):
                    self._answering.popleft()
                    self._release(oldest.intake)
        finally:
            if self._answering:
                asyncio.get_running_loop().call_soon(self._answer_some)

    def _release(self, intake: SealedIntake) -> None:
        """All groups of an intake are answered: let in requests that wait for room, and seal the open intake."""
        self._bytes_held -= sum(intake.batch_record_bytes)
        self._unsettled_count -= 1
        if self._bytes_held < INTAKE_BUFFER_BYTES_MAX:
            self._has_room.set()
        self._schedule()
        if self._unsettled_count == 0 and self._batcher.is_empty:
            self._is_drained.set()

    def _keep_in_cache(self, intake: SealedIntake, outcome: ChunksCommitted) -> None:
        """Keep the chunks of an intake for the consumers that are about to fetch them.

        The copy joins batches that lie scattered over receive buffers, frees these, and gets the real offsets. Beyond
        CHUNKS_KEPT_PER_INTAKE_MAX chunks are read from the store: to copy them would stop the loop for too long.
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
        if any(outcome.error_codes[batch:batch_end]):  # the chunk in the index has no rows for rejected batches
            return
        ref = self._locate(intake, chunk, offset)
        stored = None if ref is None else self._ledger.state.objects.get(ref.object_id)
        # A duplicate's first copy lies in another object, and its bytes may differ from the repeat's.
        if (
            ref is None
            or stored is None
            or stored.key != intake.key
            or ref.byte_first != intake.chunk_byte_firsts[chunk]
        ):
            return
        # The chunk may be several rows of the index, or part of another one by now: then it is read from the store.
        if ref.offset_first != offset or ref.byte_count != len(copied):
            return
        if patch_offsets(copied, offset) != ref.offset_end:
            return
        if outcome.append_time_ms[chunk] != NO_TIMESTAMP:
            set_log_append_time(copied, outcome.append_time_ms[chunk])
        key = intake.topic_ids[intake.chunk_topics[chunk]], PartitionIndex(intake.chunk_partitions[chunk])
        self._cache.put_produced(key, ref, ServedChunk(copied), intake.batch_is_transactional[batch:batch_end])
