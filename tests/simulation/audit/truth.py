"""What the ledger says, applied at the very moment at which it is appended: what every agent must agree with.

Rule: after each entry the state's invariants hold; a session is ended only once its lease is gone (safety rule S12); at
each position there is one digest, which every agent has there too (S3).
"""

from collections.abc import Callable, Sequence

from coordinator.apply.apply import apply
from coordinator.commands.commands import (
    CommitChunks,
    EndSession,
    Outcome,
    Proposal,
    Rejected,
    ReplaceChunks,
    StartDrain,
)
from coordinator.invariants import check
from coordinator.ledger.port import LedgerIdentity, LedgerRecord
from coordinator.snapshot import digest
from coordinator.state.state import ClusterState
from protocol.types import PartitionIndex, Position, SessionId, TopicId
from tests.simulation.audit.group_entries import GroupEntries
from tests.simulation.audit.log_starts import LogStarts
from tests.simulation.audit.older_forms import check_entry
from tests.simulation.audit.producer_entries import ProducerEntries
from tests.simulation.audit.rights_history import RightsHistory
from tests.simulation.audit.tails import Tails
from tests.simulation.audit.transaction_entries import TransactionEntries
from tests.simulation.history import History


class Truth:
    """The state at the ledger's head."""

    def __init__(self, identity: LedgerIdentity, history: History, is_lease_alive: Callable[[SessionId], bool]) -> None:
        self.state = ClusterState.empty(identity.cluster_id, identity.incarnation)
        self._history = history
        self._is_lease_alive = is_lease_alive
        self._digests: dict[Position, bytes] = {}
        self.released_s: dict[str, float] = {}
        """When each object was released, in the world's time."""
        self.released_untimed: set[str] = set()
        """Those that were released by entries which did not tell the time."""
        self.ends: dict[tuple[TopicId, PartitionIndex], list[tuple[float, int]]] = {}
        """When each partition's log end moved, and where to."""
        self.ended: set[SessionId] = set()
        """Every session that ever ended."""
        self.referred: set[str] = set()
        """Every object that was ever referred to."""
        self.discarded: set[str] = set()
        """What live sessions deleted of their own: never to be referred to."""
        self.ends_at: dict[Position, dict[tuple[str, int], int]] | None = None
        """Where partitions ended at each position; kept where somebody wants to know."""
        self.log_starts: LogStarts | None = None
        """Who judges what moves the starts of logs; nothing may while there is nobody."""
        self.groups: GroupEntries | None = None
        """Who judges what is written about groups."""
        self.transactions: TransactionEntries | None = None
        """Who judges what is written about transactions."""
        self.tails = Tails(history, lambda: self.state)
        """What manifests of the tail may say."""
        self.on_drain: Callable[[SessionId], None] = lambda session: None
        """Told whose clients are sent to others from now on."""
        self.producers: ProducerEntries | None = None
        """Who judges whether producers are forgotten; none is while there is nobody."""
        self.rights: RightsHistory | None = None
        """Who keeps what clients might do; kept where somebody asks for it."""

    def receive(self, records: Sequence[LedgerRecord], now_s: float) -> None:
        """Apply one revision."""
        for record in records:
            check_entry(record, self.state, self._history)
            if self.log_starts is not None:
                self.log_starts.before(self.state, record)
            if self.groups is not None:
                self.groups.before(self.state)
            if self.transactions is not None:
                self.transactions.before(self.state)
            if self.producers is not None:
                self.producers.before(self.state)
            proposal, outcome = apply(self.state, record)
            self._note_releases(now_s, is_timed=proposal is not None and proposal.time_ms is not None)
            if self.log_starts is not None:
                self.log_starts.after(self.state, None if proposal is None else proposal.command)
            if self.groups is not None:
                self.groups.after(self.state, record, proposal, outcome)
            if self.transactions is not None:
                self.transactions.after(self.state, proposal, outcome)
            if self.producers is not None:
                self.producers.after(self.state, proposal, outcome)
            kind = "repeat" if proposal is None else type(proposal.command).__name__
            self._history.note("ledger", kind, f"{record.position} {record.session}/{record.number} {outcome}"[:200])
            if proposal is not None:
                self._look_at(record, proposal, outcome)
            for fault in check(self.state):
                self._history.violation(f"invariant at position {record.position}: {fault}")
        self._note_ends(now_s)
        self.tails.applied()
        self._digests[self.state.position] = digest(self.state)

    def restart(self, state: ClusterState, now_s: float) -> None:
        """Another incarnation begins with `state`: what a recovery made of the bucket."""
        self.state = state
        for fault in check(state):
            self._history.violation(f"invariant at position {state.position}: {fault}")
        self.ended.update(state.sessions_ended)
        for key in state.object_ids:
            self.released_s.pop(key, None)
        self.ends.clear()
        self._note_releases(now_s, is_timed=True)
        self._note_ends(now_s)
        self.tails.restart()
        self._digests[state.position] = digest(state)

    def end_at(self, place: tuple[str, int], at_s: float) -> int:
        """Where a partition ended at a time."""
        topic_id = self.state.topic_ids.get(place[0])
        if topic_id is None:
            return 0
        ends = self.ends[topic_id, PartitionIndex(place[1])]
        return next((end for moved_s, end in reversed(ends) if moved_s <= at_s), 0)

    def end_of(self, place: tuple[str, int]) -> int:
        """Where a partition ends now."""
        topic_id = self.state.topic_ids.get(place[0])
        return 0 if topic_id is None else self.state.topics[topic_id].partitions[place[1]].log_end

    def start_of(self, place: tuple[str, int]) -> int:
        """Where a partition begins now."""
        topic_id = self.state.topic_ids.get(place[0])
        return 0 if topic_id is None else self.state.topics[topic_id].partitions[place[1]].log_start

    def check_digest(self, who: str, state: ClusterState) -> None:
        """An agent's state is what it was for everybody at its position."""
        expected = self._digests.get(state.position)
        if expected is not None and digest(state) != expected:
            self._history.violation(f"{who} has another digest at position {state.position} (S3)")

    def _look_at(self, record: LedgerRecord, proposal: Proposal, outcome: Outcome) -> None:
        command = proposal.command
        if self.rights is not None:
            self.rights.after(self.state, proposal)
        if isinstance(outcome, Rejected):
            return
        if isinstance(command, CommitChunks | ReplaceChunks) and command.object_session != record.session:
            self._history.violation(
                f"session {record.session} brought in an object of session {command.object_session} (S1)"
            )
        if isinstance(command, StartDrain):
            self.on_drain(command.session)
        if record.session in self.ended:
            self._history.violation(f"an entry of session {record.session}, which has ended, counted (S12)")
        is_by_another = isinstance(command, EndSession) and command.session != record.session
        if isinstance(command, EndSession) and is_by_another and self._is_lease_alive(command.session):
            self._history.violation(f"session {command.session} was ended while its lease lived (S12)")
        self.ended.update(self.state.sessions_ended)

    def _note_releases(self, now_s: float, *, is_timed: bool) -> None:
        for key in self.state.released.keys() - self.released_s.keys():
            self.released_s[key] = now_s
            if not is_timed:
                self.released_untimed.add(key)
        self.referred.update(self.state.object_ids)
        for key in self.discarded & self.state.object_ids.keys():
            self.discarded.discard(key)
            self._history.violation(f"{key} was deleted by its own session, and is referred to now (S6)")

    def _note_ends(self, now_s: float) -> None:
        for topic_id, topic in self.state.topics.items():
            for number, partition in enumerate(topic.partitions):
                ends = self.ends.setdefault((topic_id, PartitionIndex(number)), [(0.0, 0)])
                if ends[-1][1] != partition.log_end:
                    ends.append((now_s, partition.log_end))
        if self.ends_at is not None:
            self.ends_at[self.state.position] = {
                (topic.name, number): partition.log_end
                for topic in self.state.topics.values()
                for number, partition in enumerate(topic.partitions)
            }
