"""What clients are told to do: a stream of calls drawn from a seed, which follows what was read so far.

Rule: pure. It reads no clock and starts nothing: who runs it says what time it is and what became of each call. A value
is sent once to its key, and a key gets `WRITES_MAX` at most; then another one takes its place.
Source: Jepsen, jepsen.tests.kafka, and its Bufstream test for the rates.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.jepsen.checks.unplaced_values import UnplacedValues
from tests.jepsen.history.history import Function, Micro, MicroPoll, MicroSend, Op

MICROS_MAX = 4
PLACING_CHANCE = 1 / 64
"""Of an assign or a subscribe instead of anything else."""
UNPOLLED_CHANCE = 1 / 3
"""Of such a one to name keys, too, that hold what nobody has read."""
ABORT_CHANCE = 0.1
ALONE_CHANCE = 0.2
"""Of a send or a poll outside a transaction."""
CRASH_SECONDS = 30.0
"""Each client crashes about once in that time."""
CRASH_DELAY_SECONDS_MAX = 0.15
"""Most calls take about that long, so about half of the crashes strike in the middle of one."""
WRITES_MAX = 1024
PARTITIONS = 2
KEYS_ACTIVE = 8
TOPIC = "jepsen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one client is to do next; `crash_after_s`: when it is to be killed, counted from the call's begin."""

    f: Function
    micros: tuple[Micro, ...] = ()
    keys: tuple[str, ...] = ()
    """Or topics, of a subscribe."""
    is_aborted: bool = False
    crash_after_s: float | None = None


def key_of(number: int) -> str:
    return f"{topic_of(number // PARTITIONS)}-{number % PARTITIONS}"


def topic_of(number: int) -> str:
    return f"{TOPIC}{number}"


@dataclass(slots=True, kw_only=True)
class Generator:
    """`clients`: how many call at once. `functions`: which of txn, send and poll; `placings`: assign, subscribe."""

    seed: int
    clients: int
    functions: Sequence[Function] = ("txn", "send", "poll")
    placings: Sequence[Function] = ("assign", "subscribe")
    active: list[str] = field(default_factory=list[str])
    """Keys that are written now; the first is the most likely."""
    ends: dict[str, int] = field(default_factory=dict[str, int])
    """The highest offset of each key that an ok call told of: what the final reads must reach."""
    unplaced: UnplacedValues = field(default_factory=UnplacedValues)
    """What else these must find."""
    _numbers: int = 0
    _writes: dict[str, int] = field(default_factory=dict[str, int])
    _polled: dict[str, int] = field(default_factory=dict[str, int])
    _placed: set[int] = field(default_factory=set[int])
    """Processes that were told what to read."""
    _next_crash_s: float = 0.0
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        for _ in range(KEYS_ACTIVE):
            self._open_key()
        self._next_crash_s = self._crash_interval_s()

    @property
    def topics_count(self) -> int:
        """Topics that were named so far: `topic_of(0)` to the one before."""
        return -(-self._numbers // PARTITIONS)

    @property
    def keys(self) -> list[str]:
        """All that were ever written."""
        return list(self._writes)

    def call(self, process: int, now_s: float) -> Call:
        """What this process does next, `now_s` after the begin of the run."""
        if process not in self._placed or self._chance.random() < PLACING_CHANCE:
            self._placed.add(process)
            return self._placing()
        crash_after_s = None
        if now_s >= self._next_crash_s:
            self._next_crash_s = now_s + self._crash_interval_s()
            crash_after_s = self._chance.uniform(0, CRASH_DELAY_SECONDS_MAX)
        f = self._function()
        micros = tuple(self._micro(f) for _ in range(self._chance.randint(1, MICROS_MAX) if f == "txn" else 1))
        is_aborted = f == "txn" and self._chance.random() < ABORT_CHANCE
        return Call(f=f, micros=micros, is_aborted=is_aborted, crash_after_s=crash_after_s)

    def completed(self, op: Op) -> None:
        """Take in how a call ended."""
        self.unplaced.completed(op)
        if op.type != "ok":
            return
        for micro in op.micros:
            match micro:
                case MicroSend(key, _, int(offset)):
                    self.ends[key] = max(self.ends.get(key, -1), offset)
                case MicroPoll(records):
                    for key, pairs in records.items():
                        last = max(offset for offset, _ in pairs)
                        self.ends[key] = max(self.ends.get(key, -1), last)
                        self._polled[key] = max(self._polled.get(key, -1), last)
                case _:
                    pass

    def _function(self) -> Function:
        alone: list[Function] = [f for f in self.functions if f != "txn"]
        if alone and ("txn" not in self.functions or self._chance.random() < ALONE_CHANCE):
            return self._chance.choice(alone)
        return "txn"

    def _micro(self, f: Function) -> Micro:
        if f == "poll" or (f == "txn" and self._chance.random() < 0.5):
            return MicroPoll()
        place = min(int(self._chance.expovariate(0.5)), len(self.active) - 1)
        key = self.active[place]
        value = self._writes[key]
        self._writes[key] += 1
        if self._writes[key] >= WRITES_MAX:
            self.active.remove(key)
            self._open_key()
        return MicroSend(key, value)

    def _placing(self) -> Call:
        keys = self._chance.sample(self.active, self._chance.randint(1, len(self.active)))
        if self._chance.random() < UNPOLLED_CHANCE:
            unpolled = [key for key, end in self.ends.items() if self._polled.get(key, -1) < end]
            keys = list(dict.fromkeys([*keys, *unpolled]))
        if self._chance.choice(self.placings) == "assign":
            return Call(f="assign", keys=tuple(keys))
        return Call(f="subscribe", keys=tuple(dict.fromkeys(key.rpartition("-")[0] for key in keys)))

    def _open_key(self) -> None:
        key = key_of(self._numbers)
        self._numbers += 1
        self._writes[key] = 0
        self.active.append(key)

    def _crash_interval_s(self) -> float:
        """Until the next crash of some client."""
        return self._chance.uniform(0.5, 1.5) * CRASH_SECONDS / self.clients
