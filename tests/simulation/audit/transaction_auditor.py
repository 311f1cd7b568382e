"""Compares what transactional producers and readers are told with what they did and with what the ledger decides.

Rule: what may be judged at once is judged at once. A transaction is decided as its producer asked, or aborted because
of a time-out, a tool or another instance; a value that a read_committed reader sees is of a committed transaction, at
one offset for everybody and for ever; whoever was fenced before it asked is told no success; nothing begins or ends a
transaction that its producer did not begin or end (safety rule S7, KIP-890). At the end: of each transaction every
value and offset is there, or none; each value once, in order; no reader has stepped over one; a group's outputs come of
each input once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.state.state import NO_POSITION, ClusterState
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import Position
from tests.simulation.audit.transaction_entries import Key, Told, TransactionEntries
from tests.simulation.audit.truth import Truth
from tests.simulation.clients.wire import Place
from tests.simulation.history import History

HIDDEN_SECONDS_MAX = LEDGER_SESSION_SECONDS
"""As in `tests.simulation.audit.auditor`."""


class Outcome(StrEnum):
    """What became of a transaction, as its producer knows, or as the ledger has it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Somebody asked to commit it, and got no answer."""


@dataclass(slots=True, eq=False)
class Value:
    """One value on its way to one partition."""

    text: bytes
    place: Place
    number: int
    """Counts the values of one transactional id in one partition."""
    transaction: "Transaction | None"
    """None outside of any."""
    recoveries_count: int
    """How many recoveries there had been when it was written."""
    is_acknowledged: bool = False
    offset: int = -1
    """Where it is, once anybody knows."""
    is_left_out: bool = False
    """A recovery did not know whether it was committed."""


@dataclass(slots=True, eq=False, kw_only=True)
class Transaction:
    """One transaction, as its producer began it."""

    who: str
    """The instance."""
    transactional_id: str
    key: Key
    number: int
    values: list[Value] = field(default_factory=list[Value])
    group_id: str = ""
    sources: dict[Place, tuple[int, int]] = field(default_factory=dict[Place, tuple[int, int]])
    """What was consumed in it: first offset and end."""
    is_commit_asked: bool = False
    is_abort_asked: bool = False
    outcome: Outcome = Outcome.OPEN
    truth: Outcome = Outcome.OPEN
    ended_at: Position = NO_POSITION
    is_lost: bool = False
    """It was committed, by an entry that was lost."""

    @property
    def name(self) -> str:
        return f"{self.who}#{self.number}"


class TransactionAuditor(Told):
    """Of one run."""

    def __init__(
        self,
        history: History,
        truth: Truth,
        now_s: Callable[[], float],
        *,
        placements: Mapping[str, bool],
        group_ids: Collection[str],
        expiration_ms: int = 0,
    ) -> None:
        self._history = history
        self._truth = truth
        self._now_s = now_s
        self._placements = placements
        self.entries = TransactionEntries(
            history=history,
            now_s=now_s,
            placements=placements,
            group_ids=group_ids,
            told=self,
            expiration_ms=expiration_ms,
        )
        self._transactions: list[Transaction] = []
        self._newest: dict[Key, Transaction] = {}
        """The newest transaction that a producer began under an epoch."""
        self._values: dict[bytes, Value] = {}
        self._numbers: defaultdict[tuple[str, Place], int] = defaultdict(int)
        self._log: defaultdict[Place, dict[int, bytes]] = defaultdict(dict)
        self._seen: defaultdict[tuple[str, Place], set[bytes]] = defaultdict(set)
        """What each reader was given."""
        self._read_from: dict[tuple[str, Place], int] = {}
        self._read_to: defaultdict[tuple[str, Place], int] = defaultdict(int)
        self._last_stable_known: defaultdict[Place, int] = defaultdict(int)
        self._recoveries_count = 0
        self.lost_count = 0
        """Transactions that were committed by entries which are lost."""

    # What the ledger decides.

    def began(self, transactional_id: str, key: Key) -> None:
        transaction = self._newest.get(key)
        if transaction is None or transaction.truth is not Outcome.OPEN or transaction.outcome is not Outcome.OPEN:
            self._history.violation(
                f"a transaction of {transactional_id} begins under {key}, and nobody began one (S7)"
            )

    def ended(self, transactional_id: str, key: Key, *, is_commit: bool, is_asked: bool) -> None:
        transaction = self._newest.get(key)
        if transaction is None or transaction.truth is not Outcome.OPEN:
            self._history.violation(f"a transaction of {transactional_id} under {key} ends, and nobody began it")
            return
        transaction.truth = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        transaction.ended_at = self.entries.position
        was_asked = transaction.is_commit_asked if is_commit else transaction.is_abort_asked
        if is_asked and not was_asked:
            self._history.violation(f"{transaction.name} is {transaction.truth}, and nobody asked for that (S7)")

    def recovered(self, state: ClusterState, covered: Position, kept: Mapping[Place, int]) -> None:
        """A recovery began another incarnation with `state`. What ended up to the position `covered` stays as it was,
        everything else is aborted; of each log what is below an offset `kept` stays where it was, and of transactions
        nothing else does.
        """
        self.entries.restart(state, covered)
        self._recoveries_count += 1
        for transaction in self._transactions:
            if transaction.truth is Outcome.OPEN or transaction.ended_at > covered:
                transaction.is_lost = transaction.truth is Outcome.COMMITTED
                transaction.truth = Outcome.ABORTED
                self.lost_count += transaction.is_lost
        for value in self._values.values():
            if value.offset >= kept[value.place]:
                value.offset, value.is_left_out = -1, value.transaction is not None
                for (_, place), seen in self._seen.items():
                    if place == value.place:
                        seen.discard(value.text)
        for place, log in self._log.items():
            self._log[place] = {offset: text for offset, text in log.items() if offset < kept[place]}
            self._last_stable_known[place] = min(self._last_stable_known[place], kept[place])
        for row in (self._read_from, self._read_to):
            row.update({(who, place): min(offset, kept[place]) for (who, place), offset in row.items()})

    # What producers report.

    def begins(self, who: str, transactional_id: str, key: Key) -> Transaction:
        """A transaction, of which nothing is known to anybody else."""
        transaction = Transaction(who=who, transactional_id=transactional_id, key=key, number=len(self._transactions))
        self._transactions.append(transaction)
        self._newest[key] = transaction
        return transaction

    def writes(self, place: Place, writer: str, transaction: Transaction | None) -> Value:
        """A new value; `writer`: the transactional id, or who writes without one."""
        number = self._numbers[writer, place]
        self._numbers[writer, place] += 1
        text = f"{writer}:{place[0]}-{place[1]}:{number}".encode()
        value = self._values[text] = Value(text, place, number, transaction, self._recoveries_count)
        if transaction is not None:
            transaction.values.append(value)
        return value

    def acknowledged(self, values: list[Value], base_offset: int, *, was_fenced: bool) -> None:
        """One batch was acknowledged. `was_fenced`: somebody else had the transactional id before it was sent."""
        first = values[0]
        self._history.note(first.text.decode(), "acknowledged", f"+{len(values)} at {base_offset}")
        is_placed_later = first.transaction is not None and self._placements[first.place[0]]
        if is_placed_later and base_offset != -1:
            self._history.violation(f"{first.text!r} is acknowledged at {base_offset} before it commits")
        if not is_placed_later and base_offset < 0:
            self._history.violation(f"{first.text!r} is acknowledged with offset {base_offset}")
        if was_fenced:
            self._history.violation(f"{first.text!r} is acknowledged, and its producer was fenced before it was sent")
        if first.recoveries_count < self._recoveries_count:
            return  # what was told before the ledger was lost may be read after it, and need not be so any more
        for row, value in enumerate(values):
            value.is_acknowledged = True
            if base_offset >= 0:
                self._place(value, base_offset + row)

    def appended_before(self, values: list[Value]) -> None:
        """One batch was answered as a repeat of one that is in the log, and that no agent remembers the offset of."""
        first = values[0]
        self._history.note(first.text.decode(), "appended before", f"+{len(values)}")
        if first.recoveries_count == self._recoveries_count:
            for value in values:
                value.is_acknowledged = True

    def is_fenced(self, transactional_id: str, key: Key) -> bool:
        """Whether the newest epoch is another one."""
        return self.entries.newest(transactional_id) != key

    def asks_to_end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """EndTxn is about to be sent for the first time."""
        transaction.is_commit_asked |= is_commit
        transaction.is_abort_asked |= not is_commit
        if is_commit:
            transaction.outcome = Outcome.UNKNOWN

    def told_end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """It was answered without an error."""
        transaction.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        self._history.note(transaction.who, transaction.outcome.value, transaction.name)
        if is_commit and transaction.truth is not Outcome.COMMITTED and not transaction.is_lost:
            self._history.violation(f"{transaction.name} is told to be committed, and is {transaction.truth}")
        if not is_commit and transaction.truth is Outcome.COMMITTED:
            self._history.violation(f"{transaction.name} is told to be aborted, and is committed")
        if not is_commit and transaction.truth is Outcome.OPEN and self._holds_open(transaction):
            self._history.violation(f"{transaction.name} is told to be aborted, and is open")

    def _holds_open(self, transaction: Transaction) -> bool:
        is_newest = self._newest.get(transaction.key) is transaction
        is_open = transaction.transactional_id in self.entries.open_ids()
        return is_newest and is_open and not self.is_fenced(transaction.transactional_id, transaction.key)

    def initialised(self, who: str, transactional_id: str, key: Key, *, is_newer: bool) -> None:
        """InitProducerId was answered. `is_newer`: no other instance asked meanwhile, so it must be the newest."""
        self._history.note(who, "initialised", f"{transactional_id} {key}")
        newest = self.entries.newest(transactional_id)
        is_forgotten = newest is None and self.entries.was_of(transactional_id, key)  # since it was answered
        if not is_forgotten and (newest is None or newest < key):
            self._history.violation(f"{who} is given {key} of {transactional_id}, where {newest} is the newest")

    def told_error(self, who: str, transactional_id: str, key: Key, error: int, what: str) -> None:
        """An error that ends a transaction, or a producer: there has to be a reason."""
        self._history.note(who, "transaction error", f"{ErrorCode(error).name} for {what}")
        newest = self.entries.newest(transactional_id)
        is_another_id = newest is not None and newest[0] != key[0] and error == ErrorCode.invalid_producer_id_mapping
        is_fencing = is_another_id or error in {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}
        if newest is None:  # it was forgotten, perhaps since it was answered
            was_fenced = self.entries.was_fenced(transactional_id, key)
            is_another_id = key[0] >= 0 and error == ErrorCode.invalid_producer_id_mapping
            is_fencing = is_another_id or (is_fencing and was_fenced)
        if not is_fencing or newest == key:
            self._history.violation(
                f"{who} of {key} is told {ErrorCode(error).name} for {what}, where {newest} is the newest"
            )

    def told_offsets(self, who: str, group_id: str, offsets: Mapping[Place, int], asked_s: float) -> None:
        """An OffsetFetch was answered; -1 where nothing is committed."""
        self._history.note(who, "offsets fetched", f"{group_id} {sorted(offsets.items())}")
        for place, offset in offsets.items():
            true = self.entries.offsets_between(group_id, place, asked_s, self._now_s())
            if offset not in true:
                self._history.violation(
                    f"{who} is told that {group_id} has come to {offset} of {place}, where {sorted(true)} is true (S4)"
                )

    def told_stable_offsets(self, who: str, group_id: str, offsets: Mapping[Place, int], asked_s: float) -> None:
        """An OffsetFetch with RequireStable was answered: for no partition whose group is about to move (KIP-447)."""
        for place, offset in offsets.items():
            if self.entries.is_about_to_move(group_id, place, asked_s):
                self._history.violation(
                    f"{who} is told that {group_id} has come to {offset} of {place}, where a transaction is open that "
                    f"moves it"
                )

    def told_level(self, who: str, epoch: int, level: int) -> None:
        """The level of transaction.version, with the epoch of the features."""
        self._history.note(who, "level", f"{level} of epoch {epoch}")
        if self.entries.levels.get(epoch) != level:
            self._history.violation(f"{who} is told level {level} of epoch {epoch}, by entries {self.entries.levels}")

    # What readers report.

    def last_stable_known(self, place: Place) -> int:
        """What a question for the last stable offset that is asked now must be answered at least."""
        return self._last_stable_known[place]

    def told_last_stable(self, who: str, place: Place, offset: int, at_least: int = 0) -> None:
        """By ListOffsets, after a barrier; or by a Fetch, of an agent that may be behind."""
        true = self.entries.last_stable(place)
        if not at_least <= offset <= true:
            self._history.violation(
                f"{who} is told that {place} is decided up to {offset}, but {at_least} was true before and {true} is "
                f"(S4)"
            )
        self._last_stable_known[place] = max(self._last_stable_known[place], offset)

    def begins_at(self, who: str, place: Place, position: int) -> None:
        """A reader begins again: what it has seen counts from here on."""
        self._read_from[who, place] = self._read_to[who, place] = position
        self._seen[who, place] = set()

    def read(
        self,
        who: str,
        place: Place,
        position: int,
        *,
        records: list[tuple[int, bytes]],
        ranges: list[tuple[int, int]],
        is_committed: bool,
    ) -> None:
        """Records that a reader got who wanted them from `position` on, and the offsets that the batches cover."""
        self._history.note(who, "reads", f"{place} {position}..{ranges[-1][1]} {len(records)}")
        expected = position
        for first, end in ranges:
            if end <= expected or (first < expected and expected != position):
                self._history.violation(f"nonmonotonic-poll: {who} is given {first}..{end} of {place} at {expected}")
            self._goes_by(who, place, range(expected, first))
            expected = end
        if is_committed and expected > self.entries.last_stable(place):
            self._history.violation(
                f"{who} is given {place} up to {expected}, which is decided up to {self.entries.last_stable(place)}"
            )
        for offset, text in records:
            if offset >= position:
                self._sees(who, place, offset, text, is_committed=is_committed)
        self._read_to[who, place] = expected

    def _goes_by(self, who: str, place: Place, offsets: range) -> None:
        """No batch covers them: nothing that is there may be among them."""
        for offset in offsets:
            text = self._log[place].get(offset)
            if text is not None and _is_true(self._values[text]):
                self._history.violation(f"poll-skip: {who} is not given {text!r} at {offset} of {place}")

    def _sees(self, who: str, place: Place, offset: int, text: bytes, *, is_committed: bool) -> None:
        value = self._values.get(text)
        if value is None or value.place != place:
            self._history.violation(f"{who} read {text!r} in {place}, where nobody sent it")
            return
        if value.is_left_out:
            self._history.violation(f"{who} sees {text!r} at {offset}, which the recovery left out (S9)")
        self._place(value, offset)
        transaction = value.transaction
        if transaction is not None:
            is_open = transaction.truth is not Outcome.COMMITTED
            if is_open and (is_committed or self._placements[place[0]]):
                kind = "aborted read" if transaction.truth is Outcome.ABORTED else "precommitted-read"
                self._history.violation(f"{kind}: {who} sees {text!r} at {offset} of {transaction.name}")
        if text in self._seen[who, place]:
            self._history.violation(f"{who} is given {text!r} twice")
        self._seen[who, place].add(text)

    def _place(self, value: Value, offset: int) -> None:
        known = self._log[value.place].setdefault(offset, value.text)
        if known != value.text:
            self._history.violation(
                f"inconsistent-offsets: {value.text!r} at {offset} of {value.place}, where {known!r} is"
            )
        if value.offset not in {-1, offset}:
            self._history.violation(f"duplicate: {value.text!r} at {value.offset} and {offset} of {value.place}")
        value.offset = offset

    def read_nothing(self, who: str, place: Place, position: int, asked_s: float) -> None:
        """A read_committed fetch found nothing: what is decided for so long is not hidden from it (safety rule S4)."""
        end = self.entries.last_stable(place, asked_s - HIDDEN_SECONDS_MAX)
        if position < end:
            self._history.violation(
                f"hidden: {who} finds nothing at {position} of {place}, which is decided up to {end} for "
                f"{HIDDEN_SECONDS_MAX} s (S4)"
            )

    def out_of_range(self, who: str, place: Place, position: int) -> None:
        """A fetch was told that there is no such offset."""
        start = self._truth.start_of(place)
        if position >= start:
            self._history.violation(f"{who} was told that {place} has no offset {position}, but it begins at {start}")

    # At the end.

    def judge(self, readers: Collection[str], places: Collection[Place], group_ids: Collection[str]) -> None:
        """When everything is decided. `readers`: those who read everything at read_committed in the end."""
        for transaction in self._transactions:
            self._judge_transaction(transaction)
        for (who, place), first in self._read_from.items():
            self._judge_reader(who, place, first)
        for who in readers:
            for place in places:
                self._judge_order(who, place)
        for group_id in group_ids:
            self._judge_sources(group_id)
        for place in places:
            if self._placements[place[0]]:
                self._judge_runs(place)

    def _judge_transaction(self, transaction: Transaction) -> None:
        known = {Outcome.COMMITTED: Outcome.COMMITTED, Outcome.ABORTED: Outcome.ABORTED}.get(transaction.outcome)
        is_written = any(value.is_acknowledged for value in transaction.values)
        if known is Outcome.COMMITTED and transaction.truth is not known and not transaction.is_lost:
            self._history.violation(f"{transaction.name} was told to be committed, and is {transaction.truth}")
        if known is Outcome.ABORTED and transaction.truth is Outcome.COMMITTED:
            self._history.violation(f"{transaction.name} was told to be aborted, and is committed")
        if transaction.truth is Outcome.OPEN and is_written:
            self._history.violation(f"{transaction.name} hangs")
        lost = [value for value in transaction.values if not value.is_acknowledged]
        if transaction.truth is Outcome.COMMITTED and lost:
            self._history.violation(f"{transaction.name} is committed without {lost[0].text!r}")

    def _judge_reader(self, who: str, place: Place, first: int) -> None:
        """It has seen what it went by."""
        for value in self._values.values():
            if value.place != place or not first <= value.offset < self._read_to[who, place]:
                continue
            if _is_true(value) and value.text not in self._seen[who, place]:
                self._history.violation(f"lost-write: {who} went by {value.text!r} at {value.offset}, which is there")

    def _judge_order(self, who: str, place: Place) -> None:
        start = self._truth.start_of(place)
        newest: dict[str, int] = {}
        for value in self._values.values():
            if value.place != place:
                continue
            transaction, is_seen = value.transaction, value.text in self._seen[who, place]
            is_true = value.is_acknowledged if transaction is None else transaction.truth is Outcome.COMMITTED
            is_gone = start > 0 and value.offset < start
            if is_true and not is_seen and not is_gone:
                self._history.violation(f"lost-write: {value.text!r} of {place} is nowhere")
            if not is_seen or transaction is None:
                continue
            before = newest.get(transaction.transactional_id, -1)
            if value.offset <= before:
                self._history.violation(f"nonmonotonic-send: {value.text!r} at {value.offset}, an earlier at {before}")
            newest[transaction.transactional_id] = value.offset

    def _judge_runs(self, place: Place) -> None:
        """What is placed at commit lies together, its marker behind it, and nothing else is there."""
        log = self._log[place]
        end = self._truth.end_of(place)
        for transaction in self._transactions:
            offsets = [value.offset for value in transaction.values if value.place == place and value.offset >= 0]
            is_run = offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
            if not is_run or (offsets and (offsets[-1] + 1 in log or offsets[-1] + 1 >= end)):
                self._history.violation(f"{transaction.name} lies at {offsets} of {place}, with no marker behind it")

    def _judge_sources(self, group_id: str) -> None:
        """Each input was consumed once by transactions that committed, and the group has come to where they ended."""
        ends: dict[Place, int] = {}
        for transaction in self._transactions:
            if transaction.group_id != group_id or transaction.truth is not Outcome.COMMITTED:
                continue
            for place, (first, end) in transaction.sources.items():
                before = ends.get(place, 0)
                is_gap_gone = first > before and self._truth.start_of(place) >= first
                if first != before and not is_gap_gone:
                    self._history.violation(
                        f"{transaction.name} consumes {place} from {first} on, and {before} was next for {group_id}"
                    )
                ends[place] = end
        for place, end in ends.items():
            committed = self.entries.offset(group_id, place)
            if committed != end:
                self._history.violation(f"{group_id} has come to {committed} of {place}, and consumed up to {end}")


def _is_true(value: Value) -> bool:
    """Whether it is there indefinitely, if it is anywhere."""
    return value.transaction is None or value.transaction.truth is Outcome.COMMITTED
