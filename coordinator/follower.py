"""Follows the ledger: turns its records into the state and into outcomes. No I/O; `agent.ledger.apply_loop` reads.

Rule: what comes is compared with what the ledger says about itself, and a contradiction raises `LedgerCorrupt`
instead of being served (safety rules S3 and S9). After that the follower must not be used again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.apply.apply import apply
from coordinator.codec.codec import WrittenEntry
from coordinator.commands.commands import CompareDigest, Outcome, Proposal
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import (
    RECOVER,
    UNREADABLE,
    Head,
    LedgerCorrupt,
    LedgerIdentity,
    LedgerRecord,
    LedgerStart,
    NewerRules,
    newer_rules,
)
from coordinator.snapshot import Frozen, decode_with_digest
from coordinator.state.state import ClusterState
from protocol.types import Position, SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An entry that was applied. `proposal` is None where it was a repeat."""

    position: Position
    session: SessionId
    number: int
    proposal: Proposal | None
    outcome: Outcome


class Follower:
    """Owns the state of one agent. Create, `load` once, then `receive` whatever the ledger's tail gives."""

    def __init__(self, identity: LedgerIdentity, rules_known: int = RULES_NEWEST) -> None:
        self._identity = identity
        self.rules_known = rules_known
        """The newest rules that the program knows; another figure than its own stands for an older program."""
        self.state = ClusterState.empty(identity.cluster_id, identity.incarnation)
        self.frozen: Frozen | None = None
        """The state behind the newest append with a `CompareDigest` (S3), until the corruption check takes it."""
        self.is_asked = False
        """Whether `receive_until_asked` has just applied such an append."""
        self._written: dict[tuple[SessionId, int], WrittenEntry] = {}

    def expect(self, session: SessionId, number: int, written: WrittenEntry) -> None:
        """Take an entry that this agent is about to append: the bytes are not read again when they come back."""
        self._written[session, number] = written

    def expect_no_more(self, session: SessionId, number: int) -> None:
        """Forget an entry that will not come back, or already did."""
        self._written.pop((session, number), None)

    def load(self, start: LedgerStart, snapshot: bytes | None) -> list[Applied]:
        """Begin from a snapshot object (None where `start` names none) and the records after it.

        Raises `LedgerCorrupt` if snapshot, pointer, records and head do not fit together: do not serve.
        """
        pointer = start.pointer
        if (pointer is None) is not (snapshot is None):
            raise LedgerCorrupt("a snapshot without its pointer, or a pointer without its snapshot")
        if pointer is not None and snapshot is not None:
            state, digest = decode_with_digest(snapshot)
            if (state.cluster_id, state.incarnation) != (self._identity.cluster_id, self._identity.incarnation):
                raise LedgerCorrupt(
                    f"the snapshot {pointer.object_key!r} is of cluster {state.cluster_id!r}, incarnation "
                    f"{state.incarnation}; the ledger of {self._identity.cluster_id!r}, {self._identity.incarnation}"
                )
            if (state.position, state.appends_count) != (pointer.position, pointer.appends_count):
                raise LedgerCorrupt(
                    f"the snapshot {pointer.object_key!r} is at {state.position} after {state.appends_count} appends, "
                    f"its pointer at {pointer.position} after {pointer.appends_count}"
                )
            if digest != pointer.digest:
                raise LedgerCorrupt(f"the snapshot {pointer.object_key!r} has another digest than its pointer says")
            self.state = state
            self._check_rules()
        applied = self.receive(start.records)
        self.check_head(start.head)
        return applied

    def receive(self, records: Sequence[LedgerRecord]) -> list[Applied]:
        """Apply records in order; skip those that the state has already, as a reader may begin again.

        `records` holds whole appends. Raises `LedgerCorrupt` for an entry that cannot be read, positions that fall, or
        rules that this program does not know.
        """
        applied = self.receive_until_asked(records)
        while self.is_asked:
            self.frozen = Frozen(self.state)
            applied += self.receive_until_asked(records)
        return applied

    def receive_until_asked(self, records: Sequence[LedgerRecord]) -> list[Applied]:
        """Like `receive`, but stops behind an append with a `CompareDigest`: then `is_asked` is true.

        The caller then freezes the state, puts that into `frozen`, and calls again with the same records. It may take
        its time, as long as nothing is applied meanwhile.
        """
        position = self.state.position
        applied: list[Applied] = []
        self.is_asked = False
        for record in records:
            if record.position <= position:
                continue
            if record.position < self.state.position:
                raise LedgerCorrupt(f"position {record.position} comes after {self.state.position}")
            if self.is_asked and record.position > self.state.position:
                break
            try:
                written = self._written.pop((record.session, record.number), None)
                proposal, outcome = apply(self.state, record, written)
            except LedgerCorrupt as error:
                raise LedgerCorrupt(
                    f"entry {record.number} of session {record.session} at position {record.position} cannot be used: "
                    f"{error}; {UNREADABLE}"
                ) from error
            self._check_rules()
            self._check_form(record, proposal)
            if proposal is not None and isinstance(proposal.command, CompareDigest):
                self.is_asked = True
            applied.append(
                Applied(
                    position=record.position,
                    session=record.session,
                    number=record.number,
                    proposal=proposal,
                    outcome=outcome,
                )
            )
        return applied

    def check_head(self, head: Head) -> None:
        """Raise `LedgerCorrupt` if the state, which has reached `head`, lacks an append (safety rule S9)."""
        if self.state.position > head.position:
            raise LedgerCorrupt(
                f"the state is at {self.state.position}, the ledger ends at {head.position}: was it restored from a "
                f"backup? Nothing was changed; {RECOVER}"
            )
        if self.state.appends_count != head.appends_count:
            raise LedgerCorrupt(
                f"{self.state.appends_count} appends were read up to {head.position}, the ledger counts "
                f"{head.appends_count}: an entry is missing; {RECOVER}"
            )

    def _check_rules(self) -> None:
        if self.state.rules_version > self.rules_known:
            raise newer_rules(self.state.rules_version, self.rules_known)

    def _check_form(self, record: LedgerRecord, proposal: Proposal | None) -> None:
        if proposal is not None and proposal.form > self.rules_known:
            raise NewerRules(
                f"the entry at position {record.position} has the form of rules {proposal.form}, this program knows "
                f"{self.rules_known}: upgrade it (S3)"
            )
