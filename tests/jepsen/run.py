"""One run: clients in transactions, faults in turn, and at the end everything is read again.

Rule: it is bounded by its minutes and what recovery and the final reads may take; what it starts ends with it. Nothing
is judged here: what happened stands in `history.jsonl`, and `tests.jepsen.checks.checker` reads that.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.jepsen.history.history import Function
from tests.jepsen.history.recorder import Recorder
from tests.jepsen.targets import Target
from tests.jepsen.workload.client_slot import Seat
from tests.jepsen.workload.generator import Generator, topic_of
from tests.jepsen.workload.libraries import CLIENTS
from tests.support.processes import START_SECONDS_MAX
from tests.torture.run import text_of
from tests.torture.schedule import Slot

TOPICS_AHEAD = 4
FOLLOW_SECONDS = 0.2
PROGRESS_SECONDS = 10.0
MESSAGE_FAULT_SECONDS = 3.0
"""After each something is done to one message."""
CALM_SECONDS = (1.0, 4.0)
CALM_SLOTS = 0.25
"""Part of the slots in which nothing is wrong."""
SLOT_SECONDS = 10.0
"""Of one in which nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """`clients`: names of libraries, one process each. `rate`: calls a second of each client, at most.

    A run goes on after its `seconds` until `commits_min` transactions have committed. All topics have `topic_configs`.
    `tells_offsets`: as `tests.jepsen.history.recorder.Recorder` says.
    """

    seed: int
    seconds: float
    clients: Sequence[str]
    folder: Path
    functions: Sequence[Function] = ("txn", "send", "poll")
    placings: Sequence[Function] = ("assign", "subscribe")
    has_faults: bool = True
    rate: float = 20.0
    commits_min: int = 0
    topic_configs: Mapping[str, str] = field(default_factory=dict[str, str])
    tells_offsets: bool = True


@dataclass(slots=True)
class Run:
    """State of a run. `problems`: what went wrong beside the data."""

    settings: RunSettings
    target: Target
    problems: list[str] = field(default_factory=list[str])
    _topics_count: int = 0
    _began_s: float = 0.0
    _printed_s: float = 0.0
    _disturbed_s: float = 0.0
    _message_chance: random.Random = field(init=False)
    _is_given_up: threading.Event = field(default_factory=threading.Event)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _working: list[Future[None]] = field(default_factory=list[Future[None]])
    _generator: Generator = field(init=False)
    _recorder: Recorder = field(init=False)

    def run(self) -> Path:
        """Returns where the history is."""
        settings = self.settings
        self._message_chance = random.Random(settings.seed)
        settings.folder.mkdir(parents=True, exist_ok=True)
        path = settings.folder / "history.jsonl"
        self._generator = Generator(
            seed=settings.seed,
            clients=len(settings.clients),
            functions=settings.functions,
            placings=settings.placings,
        )
        with ExitStack() as stack:
            self._recorder = stack.enter_context(Recorder(path, tells_offsets=settings.tells_offsets))
            seats = self._seats(stack)
            stack.enter_context(self.target)
            threads = stack.enter_context(ThreadPoolExecutor(len(seats)))
            stack.callback(self._is_over.set)
            stack.callback(self._is_given_up.set)
            self._create_topics()
            self._began_s = self._printed_s = time.monotonic()
            for number, seat in enumerate(seats):
                seat.bootstrap = self.target.bootstrap
                chance = random.Random(settings.seed * 1_000 + number)
                pauses_s = iter(partial(chance.expovariate, settings.rate), None)
                self._working.append(threads.submit(seat.work, self._is_over, pauses_s))
            self._break_things()
            self.target.calm()
            self._is_over.set()
            for each in self._working:
                each.result()
            self._print("final reads")
            for each in [threads.submit(seat.read_all, self._is_given_up) for seat in seats]:
                each.result()
            self.problems += self.target.tracebacks()
            self.problems += [problem for seat in seats for problem in seat.problems]
        return path

    def _seats(self, stack: ExitStack) -> list[Seat]:
        commands = {name: CLIENTS[name](self.settings.folder) for name in set(self.settings.clients)}
        seats: list[Seat] = []
        for number, name in enumerate(self.settings.clients):
            seat = Seat(
                name,
                number,
                commands[name],
                self.settings.folder,
                generator=self._generator,
                recorder=self._recorder,
                lock=self._lock,
            )
            stack.callback(seat.kill)
            seats.append(seat)
        return seats

    def _break_things(self) -> None:
        """Faults until the time is over; the last one has ended, and everything serves again."""
        chance = random.Random(self.settings.seed)
        slots = self.target.faults(self.settings.seed) if self.settings.has_faults else iter(())
        while self._elapsed_s() < self.settings.seconds or not self._has_enough():
            slot = None if chance.random() < CALM_SLOTS else next(slots, None)
            if slot is None:
                self._follow(max(1.0, min(SLOT_SECONDS, self.settings.seconds - self._elapsed_s())))
            else:
                self._slot(slot)
                self._follow(chance.uniform(*CALM_SECONDS))

    def _has_enough(self) -> bool:
        return self._recorder.counts["txn", "ok"] >= self.settings.commits_min

    def _slot(self, slot: Slot) -> None:
        self._print(text_of(slot.faults))
        for fault in slot.faults:
            self.target.begin(fault)
        over_s = 0.0
        for fault in sorted(slot.faults, key=lambda each: each.seconds):
            self._follow(fault.seconds - over_s)
            over_s = fault.seconds
            self.target.end(fault)
        deadline_s = time.monotonic() + START_SECONDS_MAX
        while not self.target.is_serving():
            if time.monotonic() > deadline_s:
                self.problems.append(f"{START_SECONDS_MAX} s after {text_of(slot.faults)} not all of it serves")
                break
            self._follow(FOLLOW_SECONDS)
        self.problems += self.target.died()

    def _follow(self, seconds: float) -> None:
        """Let the clients work for so long; raises what went wrong in one."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._is_over.wait(min(left_s, FOLLOW_SECONDS))
            self._create_topics()
            self._disturb()
            for each in self._working:
                if each.done():
                    each.result()
            if time.monotonic() > self._printed_s + PROGRESS_SECONDS:
                self._printed_s = time.monotonic()
                self._print(
                    ", ".join(f"{count} {f} {kind}" for (f, kind), count in sorted(self._recorder.counts.items()))
                )

    def _disturb(self) -> None:
        if self.settings.has_faults and time.monotonic() > self._disturbed_s + MESSAGE_FAULT_SECONDS:
            self._disturbed_s = time.monotonic()
            self.target.disturb(self._message_chance)

    def _create_topics(self) -> None:
        while self._topics_count < self._generator.topics_count + TOPICS_AHEAD:
            self.target.create_topic(topic_of(self._topics_count), self.settings.topic_configs)
            self._topics_count += 1

    def _print(self, text: str) -> None:
        print(f"{self._elapsed_s():7.1f} s  {text}", flush=True)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s
