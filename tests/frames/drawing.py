"""Draws what is done with frames: a seed gives a sequence of steps, whatever the sources answer.

Rule: pure. Offsets are known without asking: the only producers are the steps themselves.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

FIRST_MS: Final = 4_000_000_000_000
"""In the future: the broker's clock stamps transactions' markers, and no time that is asked for leads to one."""
BEFORE_MS: Final = FIRST_MS - 1000
TIMES_MS: Final = 60
"""Records' timestamps lie within so many milliseconds, in no order."""
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
PLACE: Final = ("topic", "partition", "offset")
FRAMES_MAX: Final = 7
PARTITIONS: Final = (3, 2)
PLAIN, COMMITTED, ABORTED = "plain", "committed", "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A topic comes into being."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Records arrive: of each partition how many, with their timestamps."""

    topic: str
    how: str
    times: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A new frame, by options of the source."""

    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A new frame."""

    frame: int
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A new frame with some of the columns."""

    frame: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """A new frame of two, which may be the same."""

    how: str
    left: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A new frame by SQL over temporary views of two frames, which may be the same: `{left}`, `{right}`."""

    text: str
    left: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    frame: int
    is_cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """An action, whose answers are compared."""

    how: str
    frame: int
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream over a topic joined with a frame, to its end and, after new records, once more."""

    topic: str
    frame: int
    times: tuple[tuple[int, ...], ...]


Step = Create | Produce | Archive | Load | Where | Select | Combine | Query | Cache | Ask | Stream
COMBINATIONS: Final = ("union", "exceptAll", "intersect", "subtract", "inner", "left_semi", "left_anti")
QUERIES: Final = (
    "SELECT * FROM {left} WHERE {condition}",
    "SELECT * FROM {left} UNION ALL SELECT * FROM {right} WHERE {condition}",
    "SELECT * FROM {left} WHERE {condition} EXCEPT ALL SELECT * FROM {right} WHERE {other}",
    "WITH w AS (SELECT * FROM {left} WHERE {condition}) SELECT * FROM w UNION ALL SELECT * FROM w WHERE {other}",
    "SELECT * FROM {left} WHERE offset >= (SELECT max(offset) FROM {right} WHERE {condition})",
    "SELECT * FROM {left} WHERE offset IN (SELECT offset FROM {right} WHERE {condition}) AND {other}",
    "SELECT a.* FROM {left} a JOIN {right} b ON a.partition = b.partition AND a.offset = b.offset + 1 WHERE b.{simple}",
)
ASKS: Final = ("count", "rows", "rows", "new rows", "first", "groups")


@dataclass(slots=True)
class Drawing:
    """A sequence in the making."""

    random: Random
    name: str
    steps: list[Step] = field(default_factory=list[Step])
    ends: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    columns: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Of each frame."""

    def create(self) -> None:
        number = len(self.ends)
        partitions = PARTITIONS[number] if number < len(PARTITIONS) else 1
        topic = f"{self.name}-{chr(ord('a') + number)}"
        self.ends[topic] = [0] * partitions
        self.steps.append(Create(topic=topic, partitions=partitions))
        self.produce(topic)

    def produce(self, topic: str) -> None:
        how = self.random.choice((PLAIN, PLAIN, PLAIN, COMMITTED, ABORTED))
        times = self._times(topic, has_marker=how != PLAIN)
        if how == ABORTED:
            # No time leads to them: the Kafka source looks at them, too, and `format("penstock")` at committed records.
            times = tuple(tuple(BEFORE_MS for _ in of_partition) for of_partition in times)
        self.steps.append(Produce(topic=topic, how=how, times=times))

    def load(self) -> None:
        options = _options(self.random, self.name, self.ends)
        self._add(Load(options=options), (*COLUMNS, HEADERS) if "includeHeaders" in options else COLUMNS)

    def where(self) -> None:
        frame = self._frame()
        self._add(Where(frame=frame, condition=self._condition(self.columns[frame])), self.columns[frame])

    def select(self) -> None:
        frame = self._frame()
        others = [name for name in self.columns[frame] if name not in PLACE and self.random.random() < 0.4]
        self._add(Select(frame=frame, columns=(*PLACE, *others)), (*PLACE, *others))

    def combine(self) -> None:
        left, right, how = self._frame(), self._frame(), self.random.choice(COMBINATIONS)
        if self.random.random() < 0.4 or (how in COMBINATIONS[:4] and self.columns[left] != self.columns[right]):
            right = left
        self._add(Combine(how=how, left=left, right=right), self.columns[left])

    def query(self) -> None:
        left, right, text = self._frame(), self._frame(), self.random.choice(QUERIES)
        if self.random.random() < 0.4 or self.columns[left] != self.columns[right]:
            right = left
        known = {
            "condition": self._condition(self.columns[left]),
            "other": self._condition(PLACE),
            "simple": f"offset < {self.random.randrange(8)}",
            "left": "{left}",
            "right": "{right}",
        }
        self._add(Query(text=text.format(**known), left=left, right=right), self.columns[left])

    def cache(self) -> None:
        self.steps.append(Cache(frame=self._frame(), is_cached=self.random.random() < 0.7))

    def archive(self) -> None:
        self.steps.append(Archive(topic=self._topic()))

    def arrive(self) -> None:
        self.produce(self._topic())

    def ask(self) -> None:
        self.steps.append(Ask(how=self.random.choice(ASKS), frame=self._frame(), count=self.random.randint(1, 4)))

    def stream(self) -> None:
        topic = self._topic()
        self.steps.append(Stream(topic=topic, frame=self._frame(), times=self._times(topic, has_marker=False)))

    def _add(self, step: Step, columns: tuple[str, ...]) -> None:
        if len(self.columns) < FRAMES_MAX:
            self.steps.append(step)
            self.columns.append(columns)

    def _topic(self) -> str:
        return self.random.choice(list(self.ends))

    def _frame(self) -> int:
        return self.random.randrange(len(self.columns))

    def _times(self, topic: str, *, has_marker: bool) -> tuple[tuple[int, ...], ...]:
        times = tuple(
            tuple(FIRST_MS + self.random.randrange(TIMES_MS) for _ in range(self.random.choice((0, 1, 3, 6))))
            for _ in self.ends[topic]
        )
        for partition, of_partition in enumerate(times):
            if of_partition:
                self.ends[topic][partition] += len(of_partition) + has_marker
        return times

    def _condition(self, columns: Sequence[str]) -> str:
        draw = self.random
        simple = [
            f"partition = {draw.randrange(3)}",
            f"partition IN ({draw.randrange(3)}, {draw.randrange(3)})",
            f"offset >= {draw.randrange(8)}",
            f"offset < {draw.randrange(1, 12)}",
            f"offset BETWEEN {draw.randrange(4)} AND {draw.randrange(3, 10)}",
            f"topic = '{self._topic()}'",
            "partition < offset",
        ]
        if "timestamp" in columns:
            simple.append(f"timestamp >= timestamp_millis({FIRST_MS + draw.randrange(TIMES_MS)})")
            simple.append(f"timestamp < timestamp_millis({FIRST_MS + draw.randrange(TIMES_MS)})")
        if "value" in columns:
            simple.append("length(value) > 5")
        if "key" in columns:
            simple.append("key IS NULL")
        one, other = draw.choice(simple), draw.choice(simple)
        return draw.choice((one, one, one, f"({one} AND {other})", f"({one} OR {other})", f"NOT {one}"))


def draw_steps(seed: int) -> list[Step]:
    """What the sequence of a seed does. It ends with a question of each frame."""
    drawing = Drawing(Random(seed), f"f{seed}")
    drawing.create()
    drawing.create()
    drawing.load()
    kinds: dict[Callable[[], None], float] = {
        drawing.ask: 4,
        drawing.where: 3,
        drawing.combine: 2.5,
        drawing.arrive: 2.5,
        drawing.query: 2,
        drawing.load: 1.5,
        drawing.select: 0.7,
        drawing.cache: 0.7,
        drawing.archive: 0.5,
        drawing.create: 0.3,
        drawing.stream: 0.1,
    }
    for step in drawing.random.choices(list(kinds), list(kinds.values()), k=drawing.random.randint(4, 9)):
        step()
    drawing.steps.append(Ask(how="rows", frame=0))
    drawing.steps.append(Ask(how="rows", frame=len(drawing.columns) - 1))
    return drawing.steps


def _options(draw: Random, name: str, ends: dict[str, list[int]]) -> dict[str, str]:
    topics = list(ends)
    chosen = draw.sample(topics, draw.randint(1, min(2, len(topics))))
    partitions = {topic: list(range(len(ends[topic]))) for topic in chosen}
    options: dict[str, str] = {}
    match draw.randrange(4):
        case 0:
            partitions = {topic: sorted(draw.sample(of, draw.randint(1, len(of)))) for topic, of in partitions.items()}
            options["assign"] = json.dumps(partitions)
        case 1:
            options["subscribePattern"] = f"{name}-.*"
            partitions = {topic: list(range(len(ends[topic]))) for topic in topics}
        case _:
            options["subscribe"] = ",".join(chosen)
    first = {
        topic: {str(p): draw.choice((-2, draw.randint(0, ends[topic][p]))) for p in of}
        for topic, of in partitions.items()
    }
    match draw.randrange(6):
        case 0:
            options["startingOffsets"] = json.dumps(first)
        case 1:
            options["startingTimestamp"] = str(FIRST_MS + draw.randrange(TIMES_MS))
        case 2:
            options["startingOffsetsByTimestamp"] = _times_json(draw, partitions)
        case _:
            pass
    if draw.random() < 0.7:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    match draw.randrange(8):
        case 0:
            low = {topic: {p: max(0, offset) for p, offset in of.items()} for topic, of in first.items()}
            last = {
                t: {p: draw.choice((-1, draw.randint(o, ends[t][int(p)]))) for p, o in of.items()}
                for t, of in low.items()
            }
            options["endingOffsets"] = json.dumps(last)
        case 1:
            options["endingTimestamp"] = str(FIRST_MS + draw.randrange(TIMES_MS))
        case 2:
            options["endingOffsetsByTimestamp"] = _times_json(draw, partitions)
        case _:
            pass
    if draw.random() < 0.3:
        options["includeHeaders"] = "true"
    if draw.random() < 0.2:
        options["minPartitions"] = str(draw.randint(1, 3))
    return options


def _times_json(draw: Random, partitions: dict[str, list[int]]) -> str:
    return json.dumps({t: {str(p): FIRST_MS + draw.randrange(TIMES_MS) for p in of} for t, of in partitions.items()})
