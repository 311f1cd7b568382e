"""What guards records that go, and clusters that lose their ledgers, switched off.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Awaitable, Iterator
from typing import Any

import tests.simulation.cluster.agents as agents_module
from agent.admin import topics
from agent.fetch import partition_lookup
from agent.handlers import delete_records
from agent.maintenance.retention import Retention
from agent.recovery.intake_commits import IntakeCommits
from agent.request.cut_off import CutOff
from coordinator.apply import apply as apply_module
from coordinator.apply import objects as apply_objects
from coordinator.apply.chunks import NO_ERROR
from coordinator.apply.retention import apply_retention
from coordinator.commands.commands import AdvanceLogStart, LogStartsAdvanced, Outcome
from coordinator.ledger.memory import MemoryLedgerCore
from coordinator.ledger.port import Ledger, LedgerIdentity
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.state.chunk_index import ChunkIndex
from coordinator.state.state import ClusterState
from protocol.types import Offset
from storage.object_store import ObjectStore
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.mutations.mutation import archives_soon, mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import LedgerLoss, Plan


def trims_by_time(plan: Plan) -> bool:
    return plan.retention_ms >= 0


def loses_ledger(plan: Plan) -> bool:
    return plan.ledger_loss in {LedgerLoss.WIPED, LedgerLoss.RESTORED}


@mutation(FaultName.CLOCK, where=trims_by_time)
def s2_retention_believes_any_clock() -> Iterator[None]:
    """Neither who proposes it asks whether the clock is checked, nor apply what the others say."""

    async def retain(self: Retention) -> int:
        with patched(self, "_proposed_time", self._clock.now_ms):
            return await retain_right(self)

    def apply_believing(state: ClusterState, command: Any) -> Outcome:
        time_ms, state.time_ms = state.time_ms, command.now_ms
        outcome = apply_right(state, command)
        state.time_ms = time_ms
        return outcome

    retain_right, apply_right = Retention.retain, apply_retention
    with patched(Retention, "retain", retain), patched(apply_module, "apply_retention", apply_believing):
        yield


@mutation(where=lambda plan: trims_by_time(plan) and plan.retention_bytes < 0)
def retention_goes_by_the_oldest_record() -> Iterator[None]:
    """A chunk goes as soon as any record in it, or behind it, is old enough."""

    def end_of_older(self: ChunkIndex, offset: Offset, timestamp_ms: int) -> Offset:
        old = [chunk.offset_end for chunk in self.rows_from(offset) if 0 <= chunk.max_timestamp < timestamp_ms]
        return max([offset, *old])

    with patched(ChunkIndex, "end_of_older", end_of_older):
        yield


@mutation(where=lambda plan: plan.retention_bytes > 0 and plan.retention_ms < 0)
def retention_counts_the_chunk_that_has_to_stay() -> Iterator[None]:
    """One chunk too many goes: less is left than retention.bytes."""

    def end_of_surplus(self: ChunkIndex, offset: Offset, bytes_max: int) -> Offset:
        end = surplus_right(self, offset, bytes_max)
        return next((chunk.offset_end for chunk in self.rows_from(end)), end) if end > offset else end

    surplus_right = ChunkIndex.end_of_surplus
    with patched(ChunkIndex, "end_of_surplus", end_of_surplus):
        yield


@mutation(where=lambda plan: plan.is_log_trimmed)
def nothing_is_ever_too_old() -> Iterator[None]:
    """The maintenance leader never looks."""

    async def retain(self: Retention) -> int:
        return 0

    with patched(Retention, "retain", retain):
        yield


def _advance_to(state: ClusterState, command: AdvanceLogStart, *, is_end_kept: bool, is_start_kept: bool) -> Outcome:
    starts: list[int] = []
    for topic_index, number, wanted in zip(command.topic, command.partition, command.log_start, strict=True):
        partition = state.topics[command.topic_ids[topic_index]].partitions[number]
        start = min(wanted, partition.log_end) if is_end_kept else wanted
        start = max(start, partition.log_start) if is_start_kept else start
        partition.log_start = partition.table_start = Offset(start)
        apply_objects.release_references(state, partition.index.truncate_before(Offset(start)))
        starts.append(start)
    return LogStartsAdvanced(error_codes=[NO_ERROR] * len(starts), log_starts=starts)


@mutation(where=lambda plan: plan.deleters > 0)
def records_are_deleted_beyond_the_end() -> Iterator[None]:
    """Neither the handler nor apply compares an offset with the high watermark."""

    def judge(services: Any, name: tuple[str, int], offset: int) -> Any:
        judged = judge_right(services, name, offset)
        if isinstance(judged, delete_records.Answered) and judged.error_code == 1:
            return delete_records._Advance(name, services.state.topic_ids[name[0]], Offset(offset))
        return judged

    def advance(state: ClusterState, command: AdvanceLogStart) -> Outcome:
        return _advance_to(state, command, is_end_kept=False, is_start_kept=True)

    judge_right = delete_records._judge
    with patched(delete_records, "_judge", judge), patched(apply_module, "advance_log_start", advance):
        yield


@mutation(is_scripted=True)
def a_log_start_goes_back() -> Iterator[None]:
    """Of two who delete, the one whose entry comes last decides."""

    def advance(state: ClusterState, command: AdvanceLogStart) -> Outcome:
        return _advance_to(state, command, is_end_kept=True, is_start_kept=False)

    with patched(apply_module, "advance_log_start", advance):
        yield


@mutation(FaultName.LEDGER_LAG, where=lambda plan: plan.deleters > 0)
def s4_records_are_deleted_without_a_barrier() -> Iterator[None]:
    """What an agent has applied is the end for who deletes up to the end."""

    async def before(end_s: float, clock: Any, awaitable: Awaitable[Any]) -> Any:
        if getattr(awaitable, "__name__", "") == "barrier":
            awaitable.close()  # type: ignore[attr-defined]
            return None
        return await before_right(end_s, clock, awaitable)

    before_right = topics.before
    with patched(delete_records, "before", before):
        yield


@mutation(where=lambda plan: plan.is_log_trimmed)
def what_is_gone_is_stepped_over() -> Iterator[None]:
    """A consumer below the log's start gets what is there, and is not told that it misses something."""

    def find_partition(state: ClusterState, requested: Any, isolation: Any) -> Any:
        topic_id = state.topic_ids.get(requested.topic)
        if topic_id is not None:
            log_start = state.topics[topic_id].partitions[requested.partition].log_start
            requested.fetch_offset = max(requested.fetch_offset, log_start)
        return find_right(state, requested, isolation)

    find_right = partition_lookup.find_partition
    with patched(partition_lookup, "find_partition", find_partition):
        yield


@mutation(FaultName.CLOCK, where=lambda plan: plan.has_common_clock and archives_soon(plan) and plan.gc_min_age_s >= 20)
def s2_the_grace_begins_at_a_time_long_past() -> Iterator[None]:
    """Where nobody tells the time, a released object gets the time that somebody told last."""

    def release(state: ClusterState, key: str) -> None:
        state.released[key] = state.time_ms

    # Clients that leave agents without a ledger let hardly any world show it.
    with patched(apply_objects, "_release", release), patched(CutOff, "is_cut_off", False):
        yield


async def nothing_reached(store: ObjectStore, ledger: Ledger) -> None:
    """In the place of `agent.bucket.cluster_identity.check_reached`."""


@mutation(where=lambda plan: plan.ledger_loss is LedgerLoss.RESTORED)
def s9_an_older_copy_of_the_ledger_is_served() -> Iterator[None]:
    """Nobody looks what the bucket says of the ledger's progress."""
    with patched(agents_module, "check_reached", nothing_reached):
        yield


@mutation(where=lambda plan: plan.ledger_loss is LedgerLoss.WIPED)
def s9_a_wiped_ledger_is_served() -> Iterator[None]:
    """Nobody looks which cluster the bucket belongs to, nor what it says of the ledger's progress."""

    def is_incarnation_of(self: LedgerIdentity, other: LedgerIdentity) -> bool:
        return True

    with (
        patched(LedgerIdentity, "is_incarnation_of", is_incarnation_of),
        patched(agents_module, "check_reached", nothing_reached),
    ):
        yield


@mutation(where=lambda plan: plan.ledger_loss is LedgerLoss.NONE_BUT_RECOVERED)
def s9_a_recovery_does_not_fence() -> Iterator[None]:
    """Agents that are started meanwhile take records, which the next incarnation does not have."""

    def check_open(self: MemoryLedgerCore) -> None:
        return

    with patched(MemoryLedgerCore, "_check_open", check_open):
        yield


@mutation(where=lambda plan: plan.ledger_loss is LedgerLoss.WIPED and plan.snapshot_entries > 40)
def s9_a_recovery_leaves_out_the_intake() -> Iterator[None]:
    """Only what the snapshot knows comes back."""

    async def commit_all(self: Any, recovery: StateRecovery, bucket: Any) -> None:
        return

    with patched(IntakeCommits, "commit_all", commit_all):
        yield


@mutation(where=lambda plan: loses_ledger(plan) and plan.seconds > 20)
def s9_producer_ids_are_given_twice() -> Iterator[None]:
    """Those that were given out after the snapshot begin again."""

    def finish(self: StateRecovery, incarnation: int) -> None:
        producer_id_next = self.state.producer_id_next
        finish_right(self, incarnation)
        self.state.producer_id_next = self.state.producers_before_deletion = producer_id_next
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                partition.unknown_producers_below = producer_id_next

    finish_right = StateRecovery.finish
    with patched(StateRecovery, "finish", finish):
        yield
