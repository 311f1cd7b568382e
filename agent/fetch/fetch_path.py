"""The fetch path: takes the steps that `agent.fetch.planner` decides on, for fetches of any partition.

In: partitions with offsets, limits and an isolation level. Out: a `PartitionRead` for each, in order: whole batches, or
an error code. Any agent can answer for any partition.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from agent.cache.chunk_cache import ServedChunk
from agent.context import AgentContext
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.partition_read import PartitionRead
from agent.fetch.planner import FetchLimits, FetchPlanner
from agent.fetch.read_ahead import ReadAhead
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import Barrier, FetchAnswer, ReadChunks, Step, WaitForMemory, WaitForRecords
from agent.fetch.unreadable_records import UnreadableRecords
from agent.fetch.wait import FetchWait
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import FETCH_RESPONSE_BYTES_MAX, LEDGER_SESSION_SECONDS
from storage.object_store import StoreError
from txn.isolation import IsolationLevel


class FetchPath:
    """Answers fetches of any partition."""

    def __init__(
        self,
        context: AgentContext,
        *,
        reader: ChunkReader,
        budget: ReadBudget,
        ahead: ReadAhead,
        confirmed_s: Callable[[], float],
    ) -> None:
        """`confirmed_s`: `LedgerClient.confirmed_s`, the last time at which this agent's state was the ledger's."""
        self._ledger = context.ledger
        self._reader = reader
        self._budget = budget
        self._ahead = ahead
        self._clock = context.clock
        self._broker_configs = context.broker_configs
        self._confirmed_s = confirmed_s
        self._unreadable = UnreadableRecords(damaged=reader.damaged, clock=context.clock, metrics=context.metrics)

    async def fetch(
        self,
        requested: Sequence[RequestedPartition],
        *,
        max_wait_ms: int,
        bytes_min: int,
        bytes_max: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_wait: FetchWait | None = None,
        capacity_bytes: Callable[[], int] | None = None,
    ) -> list[PartitionRead]:
        """Answers for all of `requested`, in order, once `bytes_min` are available or `max_wait_ms` are over.

        Chunks that are not in memory are read once the budget of all fetches has bytes for them. Where it has none
        within `max_wait_ms`, the answers have errors, high watermarks and log starts, and no records. When `fetch_wait`
        ends, both waits end. `capacity_bytes` returns the memory for the answer; it is called after the waits.
        """
        limits = FetchLimits(
            bytes_min=bytes_min,
            bytes_max=min(bytes_max, FETCH_RESPONSE_BYTES_MAX),
            deadline_s=self._clock.monotonic_s() + max_wait_ms / 1000,
            fetch_wait=fetch_wait or FetchWait(),
            capacity_bytes=capacity_bytes or (lambda: FETCH_RESPONSE_BYTES_MAX),
        )
        planner = FetchPlanner(requested, isolation, limits, memory=self._reader, broker_configs=self._broker_configs)
        answer = await self._run(planner, limits.fetch_wait)
        if planner.reservation is not None:
            has_read = planner.reservation.bytes_read > 0
            self._ahead.answered(self._ledger.state, answer.fetch_steps, has_read=has_read)
        return answer.reads

    async def marks(self, requested: Sequence[RequestedPartition], isolation: IsolationLevel) -> list[PartitionRead]:
        """Answers for all of `requested`, in order, without a wait and without records."""
        planner = FetchPlanner(requested, isolation, None, memory=self._reader, broker_configs=self._broker_configs)
        answer = await self._run(planner, FetchWait())
        return answer.reads

    async def _run(self, planner: FetchPlanner, fetch_wait: FetchWait) -> FetchAnswer:
        try:
            answer = await self._take_steps(planner, fetch_wait)
        finally:
            planner.close()
        for failed in answer.unreadable:
            self._unreadable.report(failed)
        return answer

    async def _take_steps(self, planner: FetchPlanner, fetch_wait: FetchWait) -> FetchAnswer:
        """Take the planner's steps until it answers."""
        step = self._next(planner)
        while not isinstance(step, FetchAnswer):
            match step:
                case WaitForRecords():
                    step = await self._wait(planner, step, fetch_wait)
                    continue
                case WaitForMemory():
                    reservation = await self._reserve(step, fetch_wait)
                    planner.reserved(reservation)
                    if reservation is not None:
                        with reservation:  # given back when all that the further steps read has been read, too
                            return await self._take_steps(planner, fetch_wait)
                case Barrier():
                    planner.barrier_ended(is_answered=await self._barrier())
                case ReadChunks():
                    planner.read_ended(await self._read(step, planner.reservation))
                case _:
                    assert_never(step)
            step = self._next(planner)
        return step

    def _next(self, planner: FetchPlanner) -> Step | FetchAnswer:
        # After a lease's time without the ledger's confirmation this agent may be cut off, and others may have written.
        current_until_s = self._confirmed_s() + LEDGER_SESSION_SECONDS
        return planner.next(self._ledger.state, self._clock.monotonic_s(), current_until_s)

    async def _wait(self, planner: FetchPlanner, wait: WaitForRecords, fetch_wait: FetchWait) -> Step | FetchAnswer:
        """Wait as long as the planner waits for these partitions; returns its next other step.

        It waits for a change of the state, not for timers.
        """
        # Without an await since the planner counted their bytes: a commit in between would not wake the wait.
        growth = self._ledger.watch(wait.keys)
        fetch_wait.wakes(growth.notify)
        step: Step | FetchAnswer = wait
        try:
            while isinstance(step, WaitForRecords) and step.keys is wait.keys:
                if step.seconds <= 0:
                    await self._clock.sleep(0)
                else:
                    with suppress(TimeoutError):  # the session may have been confirmed meanwhile
                        async with self._clock.timeout(step.seconds):
                            await growth.wait()
                step = self._next(planner)
        finally:
            self._ledger.unwatch(growth)
        return step

    async def _reserve(self, wait: WaitForMemory, fetch_wait: FetchWait) -> Reservation | None:
        """The reservation, in turn; None where the fetch may not wait until its turn comes."""
        reservation = self._budget.take_now(wait.byte_count)
        if reservation is not None or wait.seconds <= 0 or fetch_wait.is_over:
            return reservation
        try:
            async with self._clock.timeout(wait.seconds):
                return await self._budget.take(wait.byte_count, fetch_wait)
        except TimeoutError:
            return None

    async def _barrier(self) -> bool:
        """Whether the ledger answered: then everything that was in it is applied."""
        try:
            await self._ledger.barrier()
        except LedgerUnavailable:
            return False
        return True

    async def _read(self, read: ReadChunks, reservation: Reservation | None) -> Sequence[ServedChunk] | StoreError:
        """The chunks up to the first that cannot be read; its error where that is the first."""
        within = self._clock.timeout(read.seconds)
        try:
            return await self._reader.read(
                self._ledger.state, read.chunks, read.compressions, reservation, within=within
            )
        except StoreError as error:
            return error
