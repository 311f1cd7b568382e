"""Safety rules switched off, one at a time: the harness must find a seed that catches each.

Rule: a mutation changes the real code and nothing of the harness. Where two lines of defence keep one rule (the ledger
rejects, and so does apply), it takes both away: one alone changes nothing that could be seen. The seeds that caught
each are kept in `caught.txt`; `python -m tests.simulation.mutations.safety_rules` finds them again after a
change of the world.

Above 500 lines, for each mutation is some lines, and one table holds them all.
"""

import asyncio
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agent.admin.topics import TopicLookup
from agent.fetch import fetch_path, served_chunks
from agent.ledger import entry_objects
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.clock_check import ClockCheck
from agent.ledger.clock_trust import BELIEVED, ClockTrust, ClockVerdict
from agent.ledger.entry_objects import EntryObjects
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance import corruption_check, garbage_collector
from agent.produce.acknowledgement import NO_OFFSET, Acknowledgement
from coordinator.apply import apply as apply_module
from coordinator.apply import chunks as apply_chunks
from coordinator.apply import replace as apply_replace
from coordinator.apply import sessions as apply_sessions
from coordinator.apply import topics as apply_topics
from coordinator.apply.digest_comparison import DigestVerdict as Comparison
from coordinator.commands.commands import (
    CommitChunks,
    CommitTable,
    Outcome,
    PartitionReplacement,
    Proposal,
    ReplaceChunks,
    StartSession,
)
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedgerCore
from coordinator.ledger.port import Head, LedgerEntry, LedgerRecord, LedgerStart, LedgerUnavailable, OutcomeUnknown
from coordinator.snapshot import Frozen
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import NO_TIME, ClusterState, DigestComparison, PartitionState, TopicState
from protocol.types import Milliseconds, ObjectId, Position, ProducerId, SessionId
from storage.gc_plan import EntryFate, ListedVerdict, ReleasedPlan, judge_listed, plan_released, plan_sessions
from tests.simulation.cluster.ledger import SimulatedLedger
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.loop import NODE
from tests.simulation.mutations import acls as _of_acls  # noqa: F401 - an import enters its mutations
from tests.simulation.mutations import groups as _of_groups  # noqa: F401
from tests.simulation.mutations import losses as _entered  # noqa: F401
from tests.simulation.mutations import rejections as _of_stores  # noqa: F401
from tests.simulation.mutations import relays as _of_relays  # noqa: F401
from tests.simulation.mutations import rights as _of_rights  # noqa: F401
from tests.simulation.mutations import rules_versions as _of_rules  # noqa: F401
from tests.simulation.mutations import transaction_maintenance as _of_upkeep  # noqa: F401
from tests.simulation.mutations import transactional_members as _of_members  # noqa: F401
from tests.simulation.mutations import transactions as _of_transactions  # noqa: F401
from tests.simulation.mutations.mutation import LEASE_LOST, MUTATIONS, archives_soon, drawn_mutations, mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan, draw
from tests.simulation.world import Verdict, run
from txn.producer_state import ACCEPT, Duplicate, decide

SEEDS_DRAWN = 20_000
UNANSWERED_SECONDS = 0.05
SEEDS_TRIED_MAX = 80
TABLE = Path(__file__).parent / "caught.txt"


@mutation(*LEASE_LOST, where=lambda plan: plan.store_delay_s > 0.01)
def s1_commits_for_an_object_of_another_session() -> Iterator[None]:
    """An intake that was put under a lost session is committed under the next one."""
    commit_chunks = apply_chunks.commit_chunks

    def commit_any(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
        return commit_chunks(state, command.object_session, command)

    with patched(apply_module, "commit_chunks", commit_any):
        yield


@mutation(*LEASE_LOST)
def s1_a_fenced_append_counts_as_not_happened() -> Iterator[None]:
    """What a lost session left undecided is appended again under the next one, which may bring in its objects."""
    commit_chunks = apply_chunks.commit_chunks

    def commit_any(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
        return commit_chunks(state, command.object_session, command)

    async def replace_session(self: LedgerWriter, group: list[Any]) -> None:
        fenced = self.session
        await self.open()
        self._apply_loop.abandon(fenced)
        self._queue.extendleft(reversed(group))

    with (
        patched(apply_module, "commit_chunks", commit_any),
        patched(apply_chunks, "is_key_known", lambda state, key: key in state.object_ids),
        patched(LedgerWriter, "_replace_session", replace_session),
    ):
        yield


@mutation(FaultName.CLOCK, where=archives_soon)
def s2_a_clock_is_believed_unchecked() -> Iterator[None]:
    """Every agent proposes the time that its clock says."""

    def proposed_time(self: ClockCheck) -> Milliseconds:
        return self._clock.now_ms()

    with patched(ClockCheck, "proposed_time", proposed_time):
        yield


@mutation(FaultName.CLOCK, where=archives_soon)
def s2_a_clock_that_is_set_stays_believed() -> Iterator[None]:
    """Between two checks nobody looks whether the clock was set."""

    def proposed_time(self: ClockCheck) -> Milliseconds | None:
        return self._clock.now_ms() if self._clock.monotonic_s() < self._valid_until_s else None

    with patched(ClockCheck, "proposed_time", proposed_time):
        yield


@mutation(
    FaultName.CLOCK, where=lambda plan: not plan.has_store_clock and plan.retention_ms >= 0 and not plan.ledger_loss
)
def s21_a_step_of_the_clock_is_believed_at_once() -> Iterator[None]:
    """Where the bucket has no clock every agent believes its own, whatever it says."""

    def judge(self: ClockTrust, wall_ms: Milliseconds, uptime_s: float) -> ClockVerdict:
        return BELIEVED

    with patched(ClockTrust, "judge", judge):
        yield


@mutation()
def s3_apply_asks_who_applies() -> Iterator[None]:
    """One agent computes another state than the others."""

    def advance_time(state: ClusterState, time_ms: Milliseconds | None) -> None:
        ahead = 1 if str(NODE.get()).startswith("agent-1") else 0
        if time_ms is not None and time_ms > state.time_ms:
            state.time_ms = Milliseconds(time_ms + ahead)

    with patched(apply_module, "_advance_time", advance_time):
        yield


@mutation(FaultName.CRASH, FaultName.RESTART, where=lambda plan: plan.agents > 2 and plan.snapshot_entries < 40)
def s3_what_one_agent_alone_computed_is_published() -> Iterator[None]:
    """One agent writes another state into snapshots than it has, and nobody compares."""
    freeze_right = Frozen.__init__

    def freeze(self: Frozen, state: ClusterState) -> None:
        freeze_right(self, state)
        if str(NODE.get()).startswith("agent-1"):
            self._wire = replace(self._wire, object_id_next=self._wire.object_id_next + 1)

    def agreed(comparison: DigestComparison, own: bytes) -> Comparison:
        return Comparison.AGREED

    with patched(Frozen, "__init__", freeze), patched(corruption_check, "judge", agreed):
        yield


@mutation(FaultName.LEDGER_LAG, FaultName.LEDGER_CUT)
def s4_no_barrier() -> Iterator[None]:
    """An agent takes what it has applied for all there is."""

    async def barrier(self: ApplyLoop) -> Position:
        return self.state.position

    with patched(ApplyLoop, "barrier", barrier):
        yield


@mutation(FaultName.LEDGER_LAG, FaultName.LEDGER_CUT, where=lambda plan: plan.has_growth)
def s4_a_partition_is_unknown_without_a_barrier() -> Iterator[None]:
    """An agent takes the partitions that it has seen of a topic for all there are."""

    async def grown_to(self: TopicLookup, topic: TopicState, partition: int) -> TopicState | None:
        return None

    with patched(TopicLookup, "grown_to", grown_to):
        yield


@mutation(is_scripted=True)
def s4_a_barrier_joins_a_request_that_was_sent_before() -> Iterator[None]:
    """Whoever asks while the ledger's answer is on its way is content with that."""

    async def run_barriers(self: ApplyLoop) -> None:
        while True:
            await self._has_barrier_waiters.wait()
            try:
                head = await self._ledger.head()
            except LedgerUnavailable:
                continue
            self._has_barrier_waiters.clear()
            waiters, self._barrier_waiters = self._barrier_waiters, []
            await self.reach(head.position)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(head.position)

    with patched(ApplyLoop, "run_barriers", run_barriers):
        yield


@mutation(
    FaultName.LEDGER_CUT,
    where=lambda plan: plan.move_chance < 0.01 and plan.seconds > 30 and len(plan.faults) < 3 and not plan.ledger_loss,
)
def s4_an_agent_that_is_cut_off_answers_for_ever() -> Iterator[None]:
    """Nobody asks when the ledger confirmed the session last."""
    with patched(fetch_path, "LEDGER_SESSION_SECONDS", 1e9):
        yield


@mutation(is_scripted=True)
def s4_an_answer_of_the_ledger_counts_before_what_was_there_is_applied() -> Iterator[None]:
    """An agent whose watch lags calls its end the end, for its lease is renewed."""

    def confirm(self: LedgerWriter, session: SessionId, asked_s: float, position: Position) -> None:
        if session == self.session:
            self._confirmed_s = max(self._confirmed_s, asked_s)

    with patched(LedgerWriter, "_confirm", confirm):
        yield


@mutation(where=archives_soon)
def s6_no_grace() -> Iterator[None]:
    """A released object goes at once."""

    def at_once(released: Any, **others: Any) -> ReleasedPlan:
        return plan_released(released, **(others | {"grace_ms": 0}))

    with patched(garbage_collector, "plan_released", at_once):
        yield


@mutation(where=archives_soon)
def s6_the_first_reference_that_goes_releases_the_object() -> Iterator[None]:
    """Others may still refer to it."""

    def release(state: ClusterState, object_ids: Sequence[int]) -> None:
        for value in object_ids:
            released = state.objects.pop(ObjectId(value), None)
            if released is not None:
                del state.object_ids[released.key]
                state.released[released.key] = state.time_ms

    with ExitStack() as stack:
        for module in (apply_replace, apply_topics):
            stack.enter_context(patched(module, "release_references", release))
        yield


@mutation(where=archives_soon)
def s6_the_last_reference_that_goes_releases_nothing() -> Iterator[None]:
    """Objects that nobody refers to stay indefinitely."""

    def release(state: ClusterState, object_ids: Sequence[int]) -> None:
        for value in object_ids:
            released = state.objects[ObjectId(value)]
            released.references -= 1
            if not released.references:
                del state.objects[ObjectId(value)]
                del state.object_ids[released.key]

    with ExitStack() as stack:
        for module in (apply_replace, apply_topics):
            stack.enter_context(patched(module, "release_references", release))
        yield


@mutation(where=lambda plan: archives_soon(plan) and plan.has_operator and not plan.is_log_trimmed)
def s6_a_replacement_is_not_compared() -> Iterator[None]:
    """An archive pass that was planned from an old index is put in its place."""

    def check_partition(state: ClusterState, partition: PartitionState, replacement: PartitionReplacement) -> Any:
        row_first = partition.index.locate(replacement.replaced[0].offset_first)
        assert row_first is not None
        row_end = min(row_first + len(replacement.replaced), len(partition.index))
        chunks: list[ChunkRef] = apply_replace._archived_chunks(state.object_id_next, replacement)
        return apply_replace._Swap(partition, row_first, row_end, chunks)

    with patched(apply_replace, "_check_partition", check_partition):
        yield


@mutation(FaultName.LEDGER_CUT, FaultName.LEDGER_SHAKY, where=lambda plan: FaultName.CRASH in plan.faults)
def s6_what_a_live_session_wrote_is_garbage() -> Iterator[None]:
    """Objects that may still be committed are deleted with those of ended sessions."""

    def judge(keys: Any, **others: Any) -> ListedVerdict:
        over = dict.fromkeys(others["sessions_live"], NO_TIME) | others["sessions_ended"]
        return judge_listed(keys, **(others | {"sessions_ended": over, "sessions_live": ()}))

    with patched(garbage_collector, "judge_listed", judge):
        yield


@mutation(FaultName.LEDGER_CUT, FaultName.LEDGER_SHAKY, where=archives_soon)
def s6_an_append_of_unknown_outcome_has_its_objects_deleted() -> Iterator[None]:
    """What was put for an entry whose append is not answered soon is deleted: it may be applied all the same."""

    async def propose(self: EntryObjects, command: ReplaceChunks | CommitTable) -> Outcome:
        for key in entry_objects.keys_of(command):
            self._remember(key)
        outcome = self._ledger.propose(command)
        await asyncio.wait([outcome], timeout=UNANSWERED_SECONDS)
        if not outcome.done():
            self.fate = EntryFate.REJECTED
            raise OutcomeUnknown("no answer in time")
        self.fate = EntryFate.APPLIED
        return outcome.result()

    with patched(EntryObjects, "propose", propose):
        yield


@mutation(is_scripted=True)
def s6_nobody_looks_for_late_puts() -> Iterator[None]:
    """Ended sessions are forgotten without a second look."""

    def plan(sessions_ended: Any, **others: Any) -> Any:
        found = plan_sessions(sessions_ended, **others)
        return type(found)(first=(), last=(*found.first, *found.last))

    with patched(garbage_collector, "plan_sessions", plan):
        yield


@mutation(where=lambda plan: plan.window > 1 and plan.move_chance > 0.1)
def s8_an_unknown_producer_starts_anywhere() -> Iterator[None]:
    """A later batch through another agent overtakes the first."""

    def lenient(state: Any, **others: Any) -> Any:
        return decide(state, **(others | {"unknown_producers_below": ProducerId(1 << 62)}))

    with patched(apply_chunks, "decide", lenient):
        yield


@mutation(FaultName.CRASH, FaultName.CLIENT_CUT, FaultName.LEDGER_LAG)
def a_repeated_batch_is_a_new_one() -> Iterator[None]:
    """A producer's repeat is not recognised."""

    def forgetful(state: Any, **others: Any) -> Any:
        decision = decide(state, **others)
        return ACCEPT if isinstance(decision, Duplicate) else decision

    with patched(apply_chunks, "decide", forgetful):
        yield


@mutation(FaultName.LEDGER_LAG, FaultName.LEDGER_CUT, FaultName.PAUSE, where=lambda plan: plan.snapshot_entries < 40)
def s9_a_reader_that_fell_behind_is_not_told() -> Iterator[None]:
    """It goes on with what is left."""

    def read_after(self: MemoryLedgerCore, after: Position) -> list[LedgerRecord]:
        return [record for revision in self._revisions for record in revision if record.position > after]

    with patched(MemoryLedgerCore, "read_after", read_after):
        yield


@mutation(FaultName.CRASH, FaultName.RESTART, where=lambda plan: plan.snapshot_entries < 40)
def s9_pointer_and_entries_are_of_different_moments() -> Iterator[None]:
    """A start reads the pointer, then the entries above a newer one, and does not count them."""

    async def load(self: SimulatedLedger) -> LedgerStart:
        early = await self._ask("load", self._server.load)
        await self._link.pause(5.0)
        late = await self._ask("load", self._server.load)
        return LedgerStart(pointer=early.pointer, head=late.head, records=late.records)

    def check_head(self: Follower, head: Head) -> None:
        return

    with patched(SimulatedLedger, "load", load), patched(Follower, "check_head", check_head):
        yield


@mutation(FaultName.LEDGER_SHAKY, where=lambda plan: plan.snapshot_entries < 40 and plan.seconds > 30)
def s10_a_repeat_counts_again() -> Iterator[None]:
    """An entry that was applied, trimmed, and appended again by its sender is taken for the next one."""

    def apply_proposal(state: ClusterState, session_id: SessionId, number: int, proposal: Proposal) -> Any:
        session = state.sessions.get(session_id)
        if session is not None and number < session.entry_next:
            session.entry_next = number
        return original(state, session_id, number, proposal)

    original = apply_module.apply_proposal
    with patched(apply_module, "apply_proposal", apply_proposal):
        yield


@mutation(FaultName.LEDGER_SHAKY, FaultName.LEDGER_CUT)
def s10_a_repeat_has_other_numbers() -> Iterator[None]:
    """An append without an answer is appended once more as if it were another one."""

    async def append_renumbered(self: LedgerWriter, entries: list[LedgerEntry]) -> None:
        while True:
            try:
                await self._ledger.append(self.session, entries)
            except LedgerUnavailable:
                await self._clock.sleep(1.0)
            else:
                return
            futures = [self._apply_loop._outcomes.pop((self.session, entry.number), None) for entry in entries]
            first = self._number_next
            self._number_next += len(entries)
            entries = [LedgerEntry(number=first + row, payload=entry.payload) for row, entry in enumerate(entries)]
            for entry, future in zip(entries, futures, strict=True):
                if future is not None:
                    self._apply_loop._outcomes[self.session, entry.number] = future

    with patched(LedgerWriter, "_append_until_known", append_renumbered):
        yield


@mutation(FaultName.LEDGER_SHAKY, FaultName.LEDGER_CUT)
def s10_an_append_without_an_answer_is_given_up() -> Iterator[None]:
    """The next group follows, whether or not it happened."""

    async def append_once(self: LedgerWriter, entries: list[LedgerEntry]) -> None:
        try:
            await self._ledger.append(self.session, entries)
        except LedgerUnavailable:
            return

    with patched(LedgerWriter, "_append_until_known", append_once):
        yield


@mutation(FaultName.PAUSE, FaultName.LEDGER_CUT)
def s12_a_session_outlives_its_lease() -> Iterator[None]:
    """Neither the ledger nor apply refuses what a zombie appends under a session that has ended."""
    apply_unopened = apply_module._apply_unopened

    def expire(self: MemoryLedgerCore, session: SessionId) -> None:
        self._sessions = {name: held for name, held in self._sessions.items() if held != session}

    def apply_late(state: ClusterState, session_id: SessionId, number: int, proposal: Proposal) -> Outcome:
        if session_id in state.sessions_ended and not isinstance(proposal.command, StartSession):
            return apply_module._apply_command(state, session_id, proposal.command)
        return apply_unopened(state, session_id, number, proposal)

    with patched(MemoryLedgerCore, "expire", expire), patched(apply_module, "_apply_unopened", apply_late):
        yield


@mutation(FaultName.CRASH, FaultName.NAMESAKE, where=lambda plan: plan.is_taking_over_name)
def s12_a_name_is_taken_from_a_session_that_goes_on() -> Iterator[None]:
    """Who is sure of its name frees it, and neither the ledger nor apply rejects what the one before appends."""
    apply_unopened = apply_module._apply_unopened

    def revoke_session(self: MemoryLedgerCore, name: str, session: SessionId) -> None:
        if self._sessions.get(name) == session:
            del self._sessions[name]

    def apply_late(state: ClusterState, session_id: SessionId, number: int, proposal: Proposal) -> Outcome:
        if session_id in state.sessions_ended and not isinstance(proposal.command, StartSession):
            return apply_module._apply_command(state, session_id, proposal.command)
        return apply_unopened(state, session_id, number, proposal)

    with (
        patched(MemoryLedgerCore, "revoke_session", revoke_session),
        patched(apply_module, "_apply_unopened", apply_late),
    ):
        yield


@mutation()
def s12_a_session_is_ended_without_asking_the_ledger() -> Iterator[None]:
    """Whoever is silent counts as gone."""

    async def is_session_ended(self: SimulatedLedger, name: str, session: SessionId) -> bool:
        return True

    async def live_names(self: SimulatedLedger) -> Sequence[str]:
        return []

    with (
        patched(SimulatedLedger, "is_session_ended", is_session_ended),
        patched(SimulatedLedger, "live_names", live_names),
    ):
        yield


@mutation(*LEASE_LOST)
def s12_a_session_does_not_end_its_predecessor() -> Iterator[None]:
    """Two sessions of one name live."""

    def start_session(state: ClusterState, session_id: SessionId, command: StartSession) -> Outcome:
        before = dict(state.sessions)
        outcome = original(state, session_id, command)
        for other, session in before.items():
            state.sessions[other] = session
            state.sessions_ended.pop(other, None)
        return outcome

    original = apply_sessions.start_session
    with patched(apply_module, "start_session", start_session):
        yield


@mutation(where=lambda plan: plan.delay_s > 0.001)
def s14_the_copy_that_is_served_is_not_stamped() -> Iterator[None]:
    """A LogAppendTime topic shows its producers' times until it is archived."""
    with patched(served_chunks, "set_log_append_time", lambda batches, time_ms: None):
        yield


@mutation(FaultName.STORE_CUT, FaultName.STORE_SHAKY)
def an_error_has_base_offset_0() -> Iterator[None]:
    """A rejected batch looks like the first record of a partition."""
    defaults: tuple[object, ...] = Acknowledgement.__new__.__defaults__ or ()
    assert defaults[0] == NO_OFFSET
    with patched(Acknowledgement.__new__, "__defaults__", (0, *defaults[1:])):
        yield


def table() -> dict[str, int]:
    """The seed that catches each mutation."""
    lines = (line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(seed) for name, seed, *_ in lines}


def catch(name: str, seeds: Iterable[int]) -> Verdict | None:
    """The verdict of the first of `seeds` that catches a mutation; None where none does.

    A world that is unsound without the mutation catches nothing. The seed of the table is believed to be sound: a test
    of its own runs it.
    """
    known = table().get(name) if TABLE.exists() else None
    for seed in seeds:
        with MUTATIONS[name].switch_off():
            verdict = run(seed)
        if verdict.violations and (seed == known or not run(seed).violations):
            return verdict
    return None


def candidates(name: str) -> Iterator[int]:
    """Seeds whose worlds may show it, the quickest first; nothing is drawn before the first one is wanted."""
    plans = _plans()
    fitting = [seed for seed, plan in plans.items() if MUTATIONS[name].may_show(plan)]
    yield from sorted(fitting, key=lambda seed: (plans[seed].seconds, seed))[:SEEDS_TRIED_MAX]


@cache
def _plans() -> dict[int, Plan]:
    return {seed: draw(random.Random(seed)) for seed in range(1, SEEDS_DRAWN)}


def main() -> int:
    """Find a seed for each mutation that is named, or for all, and write the table. Exit 1 where one is not caught.

    Those that a script shows need none."""
    kept = TABLE.read_text().splitlines() if TABLE.exists() else []
    lines = {line.partition(" ")[0]: line for line in kept if not line.startswith("#")}
    known = table() if TABLE.exists() else {}
    drawn = drawn_mutations()
    for name in sys.argv[1:] or drawn:
        verdict = catch(name, chain([known[name]] if name in known else [], candidates(name)))
        lines.pop(name, None)
        if verdict is not None:
            lines[name] = f"{name} {verdict.seed} {verdict.violations[0]}"
        print(lines.get(name, f"{name}: NOT CAUGHT"), flush=True)
        header = (
            "# mutation, the seed that catches it, and by what: python -m tests.simulation.mutations.safety_rules\n"
        )
        TABLE.write_text(header + "".join(f"{lines[name]}\n" for name in drawn if name in lines))
    return 0 if len(lines) == len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main())
