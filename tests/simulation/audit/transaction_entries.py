"""What the ledger says of transactions: who has which open, what each partition holds of it, and how it ends.

Rule: judged apart from `coordinator.apply.transactions`, by entries and their outcomes. A transaction begins, grows
and ends under the newest epoch of its transactional id alone; its end puts one marker into each of its partitions, or,
where it is placed at commit, its records and one marker, and nothing where it is aborted; what its groups committed
becomes true with it, at that moment, or never. The last stable offset of a partition is the first offset of an open
transaction, and never goes back.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator.commands.commands import ChunksCommitted, CommitChunks, Done, Outcome, Proposal
from coordinator.commands.transaction import (
    AddToTransaction,
    CommitTransactionalOffsets,
    EndTransaction,
    ExpireTransaction,
    ExpireTransactionalIds,
    InitTransactionalProducer,
    SetTransactionVersion,
    TerminateTransaction,
    TransactionalOffsetsPending,
    TransactionDecided,
)
from coordinator.state.state import ClusterState, PartitionState
from protocol.errors import ErrorCode
from protocol.types import Position, ProducerId
from tests.simulation.clients.wire import Place
from tests.simulation.history import History

NOTHING_COMMITTED: Final = -1
V2: Final = 2
REFUSED_LATER: Final = frozenset({int(ErrorCode.out_of_order_sequence_number), int(ErrorCode.policy_violation)})
"""Errors of batches that have made their partitions part of the transaction all the same, as in Kafka."""
Key = tuple[int, int]
"""Producer id and epoch."""
NOBODY: Final[Key] = (-1, -1)


@dataclass(slots=True, kw_only=True)
class Held:
    """What is known of one transactional id."""

    key: Key
    timeout_ms: int
    used_ms: int | None
    """When it was used last, at the earliest, as the state tells the time; None where nobody told it."""
    is_open: bool = False
    serial: int = 0
    since_s: float = 0.0
    places: set[Place] = field(default_factory=set[Place])
    groups: set[str] = field(default_factory=set[str])


class Told:
    """Who is told what the ledger decides. A key is that of the transaction's producer."""

    def began(self, transactional_id: str, key: Key) -> None: ...

    def ended(self, transactional_id: str, key: Key, *, is_commit: bool, is_asked: bool) -> None: ...


class TransactionEntries:
    """Of one run."""

    def __init__(
        self,
        *,
        history: History,
        now_s: Callable[[], float],
        placements: Mapping[str, bool],
        group_ids: Collection[str],
        told: Told,
        expiration_ms: int = 0,
    ) -> None:
        """`placements`: the topics, and whether each is placed at commit. `group_ids`: whose offsets are looked at.
        `expiration_ms`: when transactional ids that nobody uses are forgotten; 0 for never.
        """
        self.expiration_ms = expiration_ms
        self._told_ms: int | None = None
        """What time the entry tells that is looked at."""
        self._forgotten: dict[str, Key] = {}
        """The newest producers of transactional ids when they were forgotten."""
        self.levels: dict[int, int] = {}
        """Of transaction.version, by the epoch of features."""
        self._history = history
        self._now_s = now_s
        self._placements = placements
        self._group_ids = group_ids
        self._told = told
        self._held: dict[str, Held] = {}
        self._owners: dict[int, str] = {}
        """Of producer ids."""
        self._log_ends: dict[Place, int] = {}
        self._expected_ends: dict[Place, int] = {}
        self._open: defaultdict[Place, dict[int, int]] = defaultdict(dict)
        """First offsets of open transactions, by producer id."""
        self._waiting: defaultdict[Place, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        """How many records wait for their commit, by producer id."""
        self._batches: set[tuple[Place, Key, int]] = set()
        self._pending: defaultdict[str, dict[int, dict[Place, tuple[float, int]]]] = defaultdict(dict)
        """Since when an open transaction is about to move a group, and the offset that would become true, by group and
        producer id."""
        self._offsets: defaultdict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(
            lambda: [(0.0, NOTHING_COMMITTED)]
        )
        self._last_stable: defaultdict[Place, list[tuple[float, int]]] = defaultdict(lambda: [(0.0, 0)])
        self.position = Position(0)
        """Of the newest entry."""
        self.offsets_at: dict[Position, dict[tuple[str, Place], int]] | None = None
        """How far groups had come at each position; kept where somebody wants to know."""

        self.levels[0] = V2

    # What others ask.

    def newest(self, transactional_id: str) -> Key | None:
        """Whose transactional id it is now."""
        held = self._held.get(transactional_id)
        return None if held is None else held.key

    def was_of(self, transactional_id: str, key: Key) -> bool:
        """Whether a transactional id ever had such a producer."""
        return self._owners.get(key[0]) == transactional_id

    def was_fenced(self, transactional_id: str, key: Key) -> bool:
        """Whether a transactional id that is forgotten was another one's by then, as partitions may know."""
        return transactional_id not in self._held and self._forgotten.get(transactional_id, key) != key

    def open_ids(self) -> list[str]:
        """Who has a transaction open."""
        return [transactional_id for transactional_id, held in self._held.items() if held.is_open]

    def overdue(self, state: ClusterState) -> str:
        """Who is not forgotten, though nobody used it for long."""
        return f"nobody forgets {sorted(state.transactional_ids)}" if self.expiration_ms and self._held else ""

    def last_stable(self, place: Place, at_s: float | None = None) -> int:
        """How far a partition was decided at a time, or is now."""
        moved = self._last_stable[place]
        if at_s is None:
            return moved[-1][1]
        return next((offset for moved_s, offset in reversed(moved) if moved_s <= at_s), 0)

    def offsets_between(self, group_id: str, place: Place, from_s: float, to_s: float) -> set[int]:
        """How far a group had come at any moment between two."""
        moved = self._offsets[group_id, place]
        before = next(offset for moved_s, offset in reversed(moved) if moved_s <= from_s)
        return {before} | {offset for moved_s, offset in moved if from_s <= moved_s <= to_s}

    def offset(self, group_id: str, place: Place) -> int:
        """How far a group has come."""
        return self._offsets[group_id, place][-1][1]

    def is_about_to_move(self, group_id: str, place: Place, from_s: float) -> bool:
        """Whether one open transaction was about to move a group from a time on until now."""
        everybody = self._pending[group_id].values()
        return any(place in pending and pending[place][0] <= from_s for pending in everybody)

    # What the truth tells.

    def before(self, state: ClusterState) -> None:
        """An entry is about to be applied."""
        self._log_ends = {place: int(partition.log_end) for place, partition in self._partitions(state).items()}
        self._expected_ends = dict(self._log_ends)

    def after(self, state: ClusterState, proposal: Proposal | None, outcome: Outcome | None) -> None:
        """It was applied."""
        self.position = state.position
        is_timed = proposal is not None and proposal.time_ms is not None
        self._told_ms = int(state.time_ms) if is_timed else None
        command = None if proposal is None else proposal.command
        if isinstance(outcome, TransactionDecided | TransactionalOffsetsPending) and outcome.is_stale:
            self._history.note("ledger", "stale", type(command).__name__)
        if isinstance(command, CommitChunks) and isinstance(outcome, ChunksCommitted):
            self._look_at_batches(state, command, outcome)
        elif isinstance(command, CommitTransactionalOffsets) and isinstance(outcome, TransactionalOffsetsPending):
            self._look_at_offsets(state, command, outcome)
        elif isinstance(command, ExpireTransactionalIds) and isinstance(outcome, Done):
            self._look_at_expiry(state)
        elif isinstance(command, SetTransactionVersion) and isinstance(outcome, Done):
            self._look_at_level(command)
        elif isinstance(outcome, TransactionDecided) and not outcome.error_code:
            self._look_at_decision(state, command, outcome)
        self._compare(state)
        if self.offsets_at is not None:
            self.offsets_at[self.position] = {key: moved[-1][1] for key, moved in self._offsets.items()}

    def restart(self, state: ClusterState, covered: Position) -> None:
        """A recovery begins another incarnation with `state`, of what was true at `covered`: nothing is open, nobody
        has a transactional id, and groups are where they were (safety rule S9).
        """
        assert self.offsets_at is not None, "they are kept"
        if state.transactional_ids or state.producers_of_transactions or state.open_transactions:
            self._history.violation(f"after the recovery somebody has {sorted(state.transactional_ids)} (S9)")
        self._forgotten.update(dict.fromkeys(self._held, NOBODY))
        for forgotten in (self._held, self._open, self._waiting, self._pending, self._last_stable, self._offsets):
            forgotten.clear()
        self._offsets.update({key: [(0.0, offset)] for key, offset in self.offsets_at.get(covered, {}).items()})
        self.before(state)
        self._compare(state)

    def _look_at_decision(self, state: ClusterState, command: object, outcome: TransactionDecided) -> None:
        match command:
            case InitTransactionalProducer():
                self._initialised(command, (outcome.producer_id, outcome.epoch))
            case AddToTransaction(transactional_id=transactional_id):
                held = self._opened(transactional_id, (command.producer_id, command.epoch))
                names = {place_key: place for place, place_key in self._keys.items()}
                held.places.update(names[key] for key in command.partitions if key in names)
                held.groups.update(command.groups)
            case EndTransaction(transactional_id=transactional_id):
                held = self._held[transactional_id]
                key = command.producer_id, command.epoch
                self._touch(held, is_certain=held.is_open)
                if held.is_open:
                    if key != held.key:
                        self._fault(transactional_id, f"of {held.key} is ended by {key}")
                    self._end(transactional_id, held, is_commit=command.is_commit, is_asked=True)
                if command.version >= V2:
                    held.key = outcome.producer_id, outcome.epoch
                    self._owners[outcome.producer_id] = transactional_id
            case ExpireTransaction(transactional_id=transactional_id):
                held = self._held[transactional_id]
                open_s = self._now_s() - held.since_s
                if open_s < held.timeout_ms / 1000:
                    self._fault(transactional_id, f"is timed out after {open_s:.1f} s, not {held.timeout_ms} ms")
                self._fenced(state, transactional_id)
            case TerminateTransaction():
                transactional_id = self._owners.get(command.producer_id, "")
                terminated = self._held.get(transactional_id)
                if terminated is not None and terminated.key == (command.producer_id, command.epoch):
                    self._fenced(state, transactional_id)
            case _:
                pass

    def _initialised(self, command: InitTransactionalProducer, key: Key) -> None:
        transactional_id = command.transactional_id
        held = self._held.get(transactional_id)
        if held is None:
            held = self._held[transactional_id] = Held(key=key, timeout_ms=command.timeout_ms, used_ms=None)
            if key[0] in self._owners:
                self._fault(transactional_id, f"is given {key}, whose producer id {self._owners[key[0]]} had before")
            self._touch(held, is_certain=True)
        else:
            if held.is_open:
                self._end(transactional_id, held, is_commit=False, is_asked=False)
            elif command.producer_id < 0 and key <= held.key:
                self._fault(transactional_id, f"of {held.key} is given to another instance as {key}")
            if key < held.key:
                self._fault(transactional_id, f"goes back from {held.key} to {key}")
            self._touch(held, is_certain=held.key != key)
            held.key, held.timeout_ms = key, command.timeout_ms
        self._owners[key[0]] = transactional_id

    def _fenced(self, state: ClusterState, transactional_id: str) -> None:
        """It was aborted, and its producer is not told of the next epoch."""
        held, following = self._held[transactional_id], state.transactional_ids[transactional_id].metadata
        if held.is_open:
            key = held.key
            self._touch(held, is_certain=True)
            self._end(transactional_id, held, is_commit=False, is_asked=False)
            held.key = following.producer_id, following.epoch
            self._owners[following.producer_id] = transactional_id
            if held.key <= key:
                self._fault(transactional_id, f"of {key} is aborted, and its producer may go on under {held.key}")

    def _opened(self, transactional_id: str, key: Key) -> Held:
        """Something becomes part of a transaction, which begins where none is open."""
        held = self._held.get(transactional_id)
        if held is None:
            self._fault(transactional_id, f"is written to by {key}, and nobody has it")
            held = self._held[transactional_id] = Held(key=key, timeout_ms=0, used_ms=None)
        if held.key != key:
            self._fault(transactional_id, f"of {held.key} is written to by {key}, who is fenced")
        if not held.is_open:
            held.is_open = True
            held.serial += 1
            held.since_s = self._now_s()
            self._history.note(transactional_id, "transaction", f"begins {key} {held.serial}")
            self._told.began(transactional_id, key)
            self._touch(held, is_certain=True)
        self._touch(held, is_certain=False)
        return held

    def _touch(self, held: Held, *, is_certain: bool) -> None:
        """It is used by this entry. `is_certain`: apply has to know, for something changes."""
        if is_certain or held.used_ms is None:
            held.used_ms = self._told_ms

    def _touch_id(self, transactional_id: str) -> None:
        if transactional_id in self._held:
            self._touch(self._held[transactional_id], is_certain=False)

    def _look_at_expiry(self, state: ClusterState) -> None:
        """Who is forgotten has nothing open, and was not used for long, by times that somebody told (S2)."""
        for transactional_id in [one for one in self._held if one not in state.transactional_ids]:
            held = self._held.pop(transactional_id)
            self._forgotten[transactional_id] = held.key
            self._history.note(transactional_id, "expires", f"{held.key} used at {held.used_ms} by {state.time_ms}")
            if held.is_open:
                self._fault(transactional_id, f"of {held.key} is forgotten while it is open")
            if held.used_ms is None or held.used_ms > state.time_ms - self.expiration_ms:
                when = "while nobody told the time" if held.used_ms is None else f"at {held.used_ms}"
                self._fault(transactional_id, f"was used {when}, and is forgotten at {state.time_ms} (S2)")
        for transactional_id, held in self._held.items():
            if held.used_ms is None:
                self._history.note(transactional_id, "used untimed", f"counts as used at {state.time_ms}")
                held.used_ms = int(state.time_ms)

    def _look_at_level(self, command: SetTransactionVersion) -> None:
        epoch = max(self.levels)
        if self.levels[epoch] != command.level:
            self.levels[epoch + 1] = command.level

    def _end(self, transactional_id: str, held: Held, *, is_commit: bool, is_asked: bool) -> None:
        producer_id = held.key[0]
        for place in sorted(held.places):
            if self._placements[place[0]]:
                waiting = self._waiting[place].pop(producer_id, 0)
                self._expected_ends[place] += waiting + 1 if is_commit and waiting else 0
            else:
                self._open[place].pop(producer_id, None)
                self._expected_ends[place] += 1
        for group_id in sorted(held.groups):
            pending = self._pending[group_id].pop(producer_id, {})
            for place, (_, offset) in sorted(pending.items()) if is_commit else ():
                self._offsets[group_id, place].append((self._now_s(), offset))
        held.places, held.groups, held.is_open = set(), set(), False
        self._history.note(transactional_id, "transaction", f"ends {held.key} {held.serial} {is_commit}")
        self._told.ended(transactional_id, held.key, is_commit=is_commit, is_asked=is_asked)

    def _look_at_batches(self, state: ClusterState, command: CommitChunks, outcome: ChunksCommitted) -> None:
        chunks, batches, row = command.chunks, command.batches, 0
        for topic_row, partition, count in zip(chunks.topic, chunks.partition, chunks.batch_count, strict=True):
            topic = state.topics.get(command.topic_ids[topic_row])
            place = ("" if topic is None else topic.name, int(partition))
            for at in range(row, row + count):
                if place[0] not in self._placements:
                    continue
                key = batches.producer_id[at], batches.producer_epoch[at]
                if outcome.error_codes[at] in REFUSED_LATER and batches.is_transactional[at] >= V2:
                    self._opened(self._owners.get(key[0], ""), key).places.add(place)
                elif not outcome.error_codes[at]:
                    if batches.is_transactional[at] and key[0] in self._owners:
                        self._touch_id(self._owners[key[0]])
                    is_known = key[0] >= 0 and (place, key, batches.base_sequence[at]) in self._batches
                    if not is_known:
                        self._batches.add((place, key, batches.base_sequence[at]))
                        version, records = batches.is_transactional[at], batches.record_count[at]
                        self._written(place, key, version, records, outcome.base_offsets[at])
            row += count

    def _written(self, place: Place, key: Key, version: int, records_count: int, base_offset: int) -> None:
        expected = self._expected_ends[place]
        if version:
            transactional_id = self._owners.get(key[0], "")
            held = self._held.get(transactional_id)
            if version < V2 and not (held is not None and held.is_open and place in held.places):
                self._fault(transactional_id, f"is written to in {place}, which is no part of it")
            held = self._opened(transactional_id, key)
            held.places.add(place)
            if self._placements[place[0]]:
                self._waiting[place][key[0]] += records_count
                if base_offset >= 0:
                    self._fault(transactional_id, f"has offset {base_offset} of {place} before it commits")
                return
            self._open[place].setdefault(key[0], base_offset)
        if base_offset != expected:
            self._history.violation(f"a batch for {place} gets the offset {base_offset}, {expected} was next")
        self._expected_ends[place] += records_count

    def _look_at_offsets(
        self, state: ClusterState, command: CommitTransactionalOffsets, outcome: TransactionalOffsetsPending
    ) -> None:
        rows = zip(command.topic, command.partition, command.offset, outcome.error_codes, strict=False)
        for topic, partition, offset, error in rows:
            if error or outcome.is_stale:
                continue
            key = command.producer_id, command.epoch
            held = self._held[command.transactional_id]
            if command.version < V2 and not (held.is_open and command.group_id in held.groups):
                self._fault(command.transactional_id, f"gets offsets of {command.group_id}, which is no part of it")
            held = self._opened(command.transactional_id, key)
            held.groups.add(command.group_id)
            name = state.topics[command.topic_ids[topic]].name
            pending = self._pending[command.group_id].setdefault(command.producer_id, {})
            place = (name, int(partition))
            self._look_back(command, place, int(offset), pending)
            since_s, _ = pending.get(place, (self._now_s(), NOTHING_COMMITTED))
            pending[place] = since_s, int(offset)

    def _look_back(
        self,
        command: CommitTransactionalOffsets,
        place: Place,
        offset: int,
        pending: Mapping[Place, tuple[float, int]],
    ) -> None:
        """Who consumes a group alone only goes forward, and begins again where that is committed: a lower offset came
        by a connection that its client has left (safety rule S7)."""
        if not command.group_id.startswith("flow-"):
            return  # members of a group may begin again where another one was
        _, before = pending.get(place, (0.0, self.offset(command.group_id, place)))
        if offset < before:
            self._fault(
                command.transactional_id, f"commits {offset} of {place} for {command.group_id} after {before} (S7)"
            )

    # What is compared after every entry.

    def _partitions(self, state: ClusterState) -> dict[Place, PartitionState]:
        found = [state.topics[state.topic_ids[name]] for name in self._placements if name in state.topic_ids]
        return {(topic.name, number): each for topic in found for number, each in enumerate(topic.partitions)}

    def _compare(self, state: ClusterState) -> None:
        self._keys = {place: (state.topic_ids[place[0]], place[1]) for place in self._partitions(state)}
        for place, partition in self._partitions(state).items():
            expected = self._expected_ends.get(place, 0)
            if partition.log_end != expected:
                self._history.violation(f"{place} ends at {partition.log_end}, and by its entries at {expected}")
            waiting = {
                int(producer_id): sum(run.record_count for run in runs)
                for producer_id, runs in partition.unplaced_batches.items()
            }
            known = {one: count for one, count in self._waiting[place].items() if count}
            if {one: count for one, count in waiting.items() if count} != known:
                self._history.violation(f"{waiting} records of {place} wait for their commit, and by entries {known}")
            first = min(self._open[place].values(), default=expected)
            moved = self._last_stable[place]
            last_stable = max(first, int(partition.log_start))
            if last_stable < moved[-1][1]:
                self._history.violation(f"the last stable offset of {place} goes back to {last_stable}")
            if last_stable != moved[-1][1]:
                moved.append((self._now_s(), last_stable))
            known_producers = {int(one): int(offset) for one, offset in _open_in(partition).items()}
            if known_producers != self._open[place]:
                self._history.violation(f"{place} has {known_producers} open, and by its entries {self._open[place]}")
        if state.transactional_ids.keys() != self._held.keys():
            self._history.violation(f"{sorted(state.transactional_ids)} are held, by entries {sorted(self._held)}")
        for group_id in self._group_ids:
            self._compare_offsets(state, group_id)

    def _compare_offsets(self, state: ClusterState, group_id: str) -> None:
        group = state.groups.get(group_id)
        found = {
            (state.topics[topic_id].name, int(partition)): int(committed.offset)
            for topic_id, partitions in ({} if group is None else group.offsets).items()
            for partition, committed in partitions.items()
        }
        known = {place: moved[-1][1] for (one, place), moved in self._offsets.items() if one == group_id}
        known = {place: offset for place, offset in known.items() if offset >= 0}
        if found != known:
            self._history.violation(
                f"{group_id} has come to {sorted(found.items())}, by entries {sorted(known.items())}"
            )

    def _fault(self, transactional_id: str, what: str) -> None:
        self._history.violation(f"the transaction of {transactional_id} {what}")


def _open_in(partition: PartitionState) -> Mapping[ProducerId, int]:
    return {} if partition.transactions is None else partition.transactions.open
