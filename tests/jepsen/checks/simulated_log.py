"""A log with transactions, in memory, and clients that use it at random: histories that are right, or wrong in one way.

Rule: everything comes from the seed. Without a fault a history has no anomaly but interleaved writes, which commit
placement takes away as well; with a fault the broker does one thing wrong, once it has the occasion.

A transaction's sends and polls happen between those of others, so calls overlap as they do for real. It ends as ok
(committed), fail (aborted) or info (one of both, or it never ended). Consumers read committed records, below the first
one of an open transaction; each has its partitions assigned, and goes back to where it was if its call is not ok.
"""

import random
from dataclasses import dataclass, field
from enum import StrEnum, auto
from itertools import takewhile

from tests.jepsen.checks.history_fixtures import Made
from tests.jepsen.history.history import History, Micro, MicroPoll, MicroSend, Pair, Type


class Fault(StrEnum):
    """What the broker does wrong, once."""

    DROP = auto()
    """A committed record is not there."""
    SHOW_ABORTED = auto()
    """An aborted transaction's records are given to readers."""
    TEAR = auto()
    """A commit leaves one of the transaction's records out."""
    DUPLICATE = auto()
    """A record is written twice."""
    WRONG_OFFSET = auto()
    """A writer is told the offset of another record."""
    SHOW_OPEN = auto()
    """A transaction is given its own records."""
    SKIP = auto()
    """A poll leaves a record out."""
    REPEAT = auto()
    """A poll gives the record before again."""
    SWAP = auto()
    """Two records of a producer are written in the other order."""
    INVENT = auto()
    """A record is read that nobody wrote."""


@dataclass(slots=True)
class Record:
    """What stands at an offset; `state` is open, committed, aborted, or hidden (committed, and yet not there)."""

    offset: int
    value: int
    state: str = "open"


@dataclass(slots=True)
class Running:
    """A call that has begun; `must_end`: it was given something wrong, of which it is to tell."""

    plan: list[Micro]
    started: dict[str, int]
    is_transactional: bool
    done: list[Micro] = field(default_factory=list)
    written: list[tuple[str, Record]] = field(default_factory=list)
    must_end: bool = False


@dataclass(slots=True)
class Process:
    """A client: where it reads each of its keys."""

    number: int
    positions: dict[str, int]
    running: Running | None = None


class SimulatedLog:
    """Clients and the broker; `run` gives the history."""

    def __init__(
        self,
        seed: int,
        *,
        fault: Fault | None = None,
        commit_placement: bool = False,
        processes: int = 4,
        keys: int = 3,
    ) -> None:
        self._random = random.Random(seed)
        self._fault = fault
        self._commit_placement = commit_placement
        self._keys = [f"k-{number}" for number in range(keys)]
        self._logs: dict[str, list[Record]] = {key: [] for key in self._keys}
        self._ends = dict.fromkeys(self._keys, 0)
        self._values = dict.fromkeys(self._keys, 0)
        self._made = Made()
        self._processes = [Process(number, {}) for number in range(processes)]
        self.is_fault_done = False

    def run(self, steps: int) -> History:
        """The history of so many steps, of which each begins or ends a call or does one thing in it, and of the end."""
        for process in self._processes:
            self._assign(process)
        for _ in range(steps):
            self._step(self._random.choice(self._processes))
        for process in self._processes:
            while process.running:
                self._step(process)
        self._read_everything()
        return self._made.history()

    def _step(self, process: Process) -> None:
        running = process.running
        if running is None:
            self._begin(process)
        elif running.plan:
            running.done.append(self._do(process, running, running.plan.pop(0)))
        else:
            self._end(process, running)

    def _begin(self, process: Process) -> None:
        dice = self._random.random()
        if dice < 0.05:
            self._assign(process)
            return
        if dice < 0.07:
            self._made.begun(process.number, f="crash").ended(process.number)
            self._go_on_as_another(process)
            return
        count = self._random.randint(1, 4) if self._random.random() < 0.7 else 1
        plan = [self._planned() for _ in range(count)]
        process.running = Running(plan, dict(process.positions), is_transactional=count > 1)
        self._made.begun(process.number, *plan)

    def _planned(self) -> Micro:
        if self._random.random() < 0.5:
            return MicroPoll()
        key = self._random.choice(self._keys)
        self._values[key] += 1
        return MicroSend(key, self._values[key])

    def _assign(self, process: Process) -> None:
        keys = self._random.sample(self._keys, self._random.randint(1, len(self._keys)))
        self._made.assigned(process.number, *keys)
        process.positions = {key: process.positions.get(key, 0) for key in keys}

    def _go_on_as_another(self, process: Process) -> None:
        process.number += len(self._processes)
        process.positions = {}
        self._assign(process)

    def _do(self, process: Process, running: Running, micro: Micro) -> Micro:
        if isinstance(micro, MicroPoll):
            return self._poll(process, running)
        if running.is_transactional and self._commit_placement:
            running.written.append((micro.key, Record(-1, micro.value)))
            return micro
        record = self._append(micro.key, micro.value)
        running.written.append((micro.key, record))
        return MicroSend(micro.key, micro.value, record.offset if self._random.random() < 0.8 else None)

    def _append(self, key: str, value: int) -> Record:
        record = Record(self._ends[key], value)
        self._ends[key] += 1
        self._logs[key].append(record)
        return record

    def _poll(self, process: Process, running: Running) -> MicroPoll:
        is_right_before = not self.is_fault_done
        records = {key: pairs for key in process.positions if (pairs := self._read(process, running, key))}
        running.must_end |= self.is_fault_done and is_right_before
        return MicroPoll(records)

    def _read(self, process: Process, running: Running, key: str) -> tuple[Pair, ...]:
        position = process.positions[key]
        stable = self._stable(key)
        taken = [record for record in stable if record.offset >= position][: self._random.randint(0, 5)]
        own = [record for each, record in running.written if each == key]
        if own and own[-1].offset >= position and self._occurs(Fault.SHOW_OPEN):
            taken = own[-1:]
        if not taken:
            return ()
        if len(taken) > 2 and self._occurs(Fault.SKIP):
            taken.pop(1)
        before = [record for record in stable if record.offset < position]
        if before and self._occurs(Fault.REPEAT):
            taken.insert(0, before[-1])
        process.positions[key] = taken[-1].offset + 1
        pairs = [(record.offset, record.value) for record in taken]
        if self._occurs(Fault.INVENT):
            pairs[-1] = (pairs[-1][0], 1_000_000)
        return tuple(pairs)

    def _stable(self, key: str) -> list[Record]:
        """The committed records below the first open one."""
        closed = takewhile(lambda record: record.state != "open", self._logs[key])
        return [record for record in closed if record.state == "committed"]

    def _end(self, process: Process, running: Running) -> None:
        process.running = None
        kind: Type = self._random.choices(("ok", "fail", "info"), (8, 1, 1))[0]
        if kind == "fail" and not running.is_transactional:
            kind = "ok"
        is_committed = kind == "ok" or (kind == "info" and self._random.random() < 0.5) or not running.is_transactional
        if self._commit_placement and running.is_transactional and is_committed:
            running.written = [(key, self._append(key, record.value)) for key, record in running.written]
        self._settle(running, kind, is_committed=is_committed)
        if kind != "ok":
            process.positions = running.started
        if kind == "info" and not running.must_end and self._random.random() < 0.3:
            self._go_on_as_another(process)  # the call never ends
        else:
            self._made.ended(process.number, *running.done, kind=kind, error=None if kind == "ok" else "made so")

    def _settle(self, running: Running, kind: Type, *, is_committed: bool) -> None:
        written = running.written
        for _, record in written:
            record.state = "committed" if is_committed else "aborted"
        if running.is_transactional and not self._commit_placement:
            for key in {key for key, _ in written}:
                self._ends[key] += 1  # the marker's offset
        if not written:
            return
        if kind == "fail" and self._occurs(Fault.SHOW_ABORTED):
            for _, record in written:
                record.state = "committed"
        if kind == "ok":
            self._settle_wrongly(running)

    def _settle_wrongly(self, running: Running) -> None:
        """What a fault makes of a transaction that is told to be committed."""
        key, first = running.written[0]
        if len(running.written) == 1 and self._occurs(Fault.DROP):
            first.state = "hidden"
        if len(running.written) > 1 and self._occurs(Fault.TEAR):
            first.state = "hidden"
        if self._occurs(Fault.DUPLICATE):
            self._append(key, first.value).state = "committed"
        if self._logs[key][0] != first and self._logs[key][0].state == "committed" and self._occurs(Fault.WRONG_OFFSET):
            place = next(place for place, micro in enumerate(running.done) if isinstance(micro, MicroSend))
            running.done[place] = MicroSend(key, first.value, self._logs[key][0].offset)
        if [each for each, _ in running.written[:2]] == [key, key] and self._occurs(Fault.SWAP):
            second = running.written[1][1]
            first.value, second.value = second.value, first.value

    def _occurs(self, fault: Fault) -> bool:
        """Whether the fault is to happen here: it is the one that was asked for, and has not happened yet."""
        if self._fault != fault or self.is_fault_done:
            return False
        self.is_fault_done = True
        return True

    def _read_everything(self) -> None:
        """A new process reads all keys from their beginning."""
        reader = Process(1_000_000, dict.fromkeys(self._keys, 0))
        self._made.assigned(reader.number, *self._keys, final=True)
        for key in self._keys:
            records = tuple((each.offset, each.value) for each in self._logs[key] if each.state == "committed")
            poll = MicroPoll({key: records})
            self._made.begun(reader.number, poll, final=True).ended(reader.number, poll)
