"""Plays a drawn sequence with frames of both sources, and compares what they answer, row for row.

One agent holds the records: Spark's Kafka source reads them by its protocol, `format("penstock")` from its bucket.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException

from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from tests.frames.drawing import (
    ABORTED,
    HEADERS,
    PLACE,
    PLAIN,
    Archive,
    Ask,
    Cache,
    Combine,
    Create,
    Load,
    Produce,
    Query,
    Select,
    Step,
    Stream,
    Where,
    draw_steps,
)
from tests.support.lake.archiving import archive_by_http
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.services.local_services import Penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: Final = {"tail-interval-ms": "20", "archive-interval-s": "3600", "gc-min-age-s": "3600"}
"""Of the agent: what was produced is in the bucket at once, and archived on request."""
KAFKA, PENSTOCK = "kafka", "penstock"
SOURCES: Final = (KAFKA, PENSTOCK)
SECONDS_MAX: Final = 60
Answer = Any
"""What an action returned, without the order in which tasks end; or that it failed."""
FAILED: Final = "failed"


TINY_QUERIES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.unionOutputPartitioning": "false",
}
"""Settings of a session for many queries over a few rows: else Spark compiles Java and prints long plans for each.

And without a fault of Spark 4.1: where stages end in another order than usual, joins of unions of joins may fail with
"Can't zip RDDs with unequal numbers of partitions", whatever the source.
"""
KAFKA_OPTIONS: Final = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "1",
    "kafka.group.id": "frames",
}
"""The Kafka source's default waits half a second behind each partition that ends with a transaction's marker, and makes
a consumer of each partition for each query; Spark keeps those of a named group."""


@contextmanager
def tiny_queries(session: "SparkSession") -> Iterator[None]:
    """The session is as it was behind the block."""
    before = {name: session.conf.get(name, None) for name in TINY_QUERIES}
    for name, value in TINY_QUERIES.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is not None:
                session.conf.set(name, known)
            else:
                session.conf.unset(name)


class Differs(AssertionError):
    """The sources do not answer the same."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """How much was compared."""

    sequences: int = 0
    answers: int = 0
    rows: int = 0
    failures: int = 0
    """Answers that are errors, of both."""

    def __str__(self) -> str:
        return f"{self.sequences} sequences, {self.answers} answers, {self.rows} rows, {self.failures} errors of both"


@dataclass(slots=True, kw_only=True)
class World:
    """An agent with its topics, and the session that reads them in two ways."""

    broker: Penstock
    session: "SparkSession"
    folder: Path
    tally: Tally = field(default_factory=Tally)
    plain: Producer = field(init=False)
    transactional: Producer = field(init=False)
    admin: AdminClient = field(init=False)
    lake: SparkLake = field(init=False)

    def __post_init__(self) -> None:
        settings = {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0}
        self.plain = Producer(settings)
        self.transactional = Producer({**settings, "transactional.id": "frames"})
        self.transactional.init_transactions(SECONDS_MAX)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.lake = SparkLake(open_bucket(self.store, {}))

    @property
    def store(self) -> str:
        return f"file://{self.broker.data / 'store'}"

    def create(self, topic: str, partitions: int) -> None:
        """A topic whose records may be of any time."""
        config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(SECONDS_MAX)

    def play(self, seed: int) -> None:
        """Play the sequence of a seed. Raises `Differs`, with the seed and all steps up to there."""
        sequence = _Sequence(world=self)
        played: list[Step] = []
        try:
            for step in draw_steps(seed):
                played.append(step)
                sequence.play(step)
        except Differs as error:
            steps = "\n".join(f"  {step}" for step in played)
            raise Differs(f"seed {seed}\n{steps}\n{error}") from None
        finally:
            sequence.end()
        self.tally.sequences += 1

    def read(self, source: str, *, is_stream: bool = False) -> Any:  # noqa: ANN401
        """A reader of committed records."""
        reader = (self.session.readStream if is_stream else self.session.read).format(source)
        if source == PENSTOCK:
            return reader.option("penstock.store", self.store)
        return reader.options(**{"kafka.bootstrap.servers": self.broker.bootstrap, **KAFKA_OPTIONS})


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """What a sequence has made so far: of each source the frames, in the order in which they came."""

    world: World
    frames: dict[str, "list[DataFrame]"] = field(default_factory=lambda: {source: [] for source in SOURCES})
    planned: dict[int, tuple[str, Any]] = field(default_factory=dict[int, tuple[str, Any]])
    """What the Kafka source answered when frames were first collected by plans of their own."""
    ends: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    produced: int = 0
    streams: int = 0

    def play(self, step: Step) -> None:
        match step:
            case Create(topic=topic, partitions=partitions):
                self.world.create(topic, partitions)
                self.ends[topic] = [0] * partitions
            case Produce(topic=topic, how=how, times=times):
                self._produce(topic, how, times)
                self._wait(topic)
            case Archive(topic=topic):
                archive_by_http(self.world.broker, topic)
            case Cache():
                self._cache(step)
            case Ask(how="rows"):
                self._ask_plan(step)
            case Ask():
                self._compare(lambda source: _ask(step, self.frames[source][step.frame]))
            case Stream():
                self._stream(step)
            case Load(options=options):
                self._load(options)
            case Where() | Select() | Combine() | Query():
                for source in SOURCES:
                    self.frames[source].append(self._made(step, source))
            case _:
                assert_never(step)

    def end(self) -> None:
        """Nothing of it is left to the next one."""
        self.world.session.catalog.clearCache()
        for deleted in self.world.admin.delete_topics(list(self.ends)).values():
            deleted.result(SECONDS_MAX)

    def _cache(self, step: Cache) -> None:
        """Filled at once: Spark plans when `cache` is called, and the Kafka source looks for the end when it fills."""
        if step.is_cached:
            self._compare(lambda source: [(self.frames[source][step.frame].cache().count(),)])
            return
        for source in SOURCES:
            self.frames[source][step.frame].unpersist(blocking=True)

    def _load(self, options: dict[str, str]) -> None:
        """Where a source refuses options at once, the other one does, too, or in the frame's first query. The sequence
        goes on with a frame without bounds then."""
        try:
            loaded = [self._loaded(options, source) for source in SOURCES]
        except PySparkException:
            self._compare(lambda source: self._loaded(options, source).collect())
            unbounded = {name: value for name, value in options.items() if not name.startswith(("starting", "ending"))}
            loaded = [self._loaded(unbounded, source) for source in SOURCES]
        for source, frame in zip(SOURCES, loaded, strict=True):
            self.frames[source].append(frame)

    def _loaded(self, options: dict[str, str], source: str) -> "DataFrame":
        loaded: DataFrame = self.world.read(source).options(**options).load()
        return loaded

    def _made(self, step: Where | Select | Combine | Query, source: str) -> "DataFrame":
        known = self.frames[source]
        match step:
            case Where(frame=frame, condition=condition):
                return known[frame].where(condition)
            case Select(frame=frame, columns=columns):
                return known[frame].select(*columns)
            case Combine(how=("union" | "exceptAll" | "intersect" | "subtract") as how, left=left, right=right):
                combined: DataFrame = getattr(known[left], how)(known[right])
                return combined
            case Combine(how=how, left=left, right=right):
                places = known[right].select(*PLACE)
                return known[left].join(places, list(PLACE), how).select(*known[left].columns)
            case Query(text=text, left=left, right=right):
                known[left].createOrReplaceTempView(f"left_{source}")
                known[right].createOrReplaceTempView(f"right_{source}")
                # The same view twice where it is the same frame.
                views = {"left": f"left_{source}", "right": f"{'left' if left == right else 'right'}_{source}"}
                return self.world.session.sql(text.format(**views))
            case _:
                assert_never(step)

    def _produce(self, topic: str, how: str, times: tuple[tuple[int, ...], ...]) -> None:
        producer = self.world.plain if how == PLAIN else self.world.transactional
        if how != PLAIN:
            producer.begin_transaction()
        for partition, of_partition in enumerate(times):
            for time in of_partition:
                number = self.produced
                self.produced += 1
                producer.produce(
                    topic,
                    value=None if number % 7 == 3 else b"v" * (number % 5) + b"%d" % number,
                    key=None if number % 3 == 0 else b"k%d" % (number % 4),
                    partition=partition,
                    timestamp=time,
                    headers=[("h", b"%d" % number), ("empty", None)] if number % 2 else None,
                )
            if of_partition:
                self.ends[topic][partition] += len(of_partition) + (how != PLAIN)
        producer.flush(SECONDS_MAX)
        if how == ABORTED:
            producer.abort_transaction(SECONDS_MAX)
        elif how != PLAIN:
            producer.commit_transaction(SECONDS_MAX)

    def _wait(self, topic: str) -> None:
        """Until the bucket's manifest has what was produced."""
        self.world.broker.process.wait_until(
            lambda: self._is_readable(topic), "the tail manifest", seconds_max=SECONDS_MAX
        )

    def _is_readable(self, topic: str) -> bool:
        found = topic_in_manifest(self.world.lake, topic)
        return found is not None and [each.readable_end for each in found.partitions] == self.ends[topic]

    def _ask_plan(self, step: Ask) -> None:
        """The rows of the frame's own plan, which Spark makes once and `format("penstock")` keeps to. The Kafka source
        looks for the end in each task, so what it answered first is what has to come again."""
        frame = step.frame
        if frame not in self.planned:
            self.planned[frame] = _answer(lambda source: _ask(step, self.frames[source][frame]), KAFKA)
        self._compare_with(self.planned[frame], lambda source: _ask(step, self.frames[source][frame]))

    def _compare(self, ask: Callable[[str], Answer]) -> None:
        self._compare_with(_answer(ask, KAFKA), ask)

    def _compare_with(self, kafka: tuple[str, Any], ask: Callable[[str], Answer]) -> None:
        penstock = _answer(ask, PENSTOCK)
        self.world.tally.answers += 1
        is_failed = kafka[0] == FAILED
        if is_failed:
            self.world.tally.failures += 1
        else:
            self.world.tally.rows += len(kafka[1])
        if kafka[0] != penstock[0] or (not is_failed and kafka != penstock):
            raise Differs(f"kafka:    {_shown(kafka)}\npenstock: {_shown(penstock)}")

    def _stream(self, step: Stream) -> None:
        """Each source's stream joined with its own frame."""
        self.streams += 1
        for produced in ((), step.times):
            if produced:
                self._produce(step.topic, PLAIN, produced)
                self._wait(step.topic)
            self._compare(lambda source: self._batches(step, source))
        shutil.rmtree(self._checkpoint(KAFKA).parent)

    def _batches(self, step: Stream, source: str) -> Answer:
        """The rows up to the end of the topic. A frame of other topics takes part by its places.

        By runs until one brings none: behind a batch that failed before, `format("penstock")` needs another one.
        """
        rows = more = self._run(step, source)
        while more:
            more = self._run(step, source)
            rows = [*rows, *more]
        return rows

    def _run(self, step: Stream, source: str) -> list[Any]:
        rows: list[Any] = []
        right = self.frames[source][step.frame].select("partition", "offset").withColumnRenamed("offset", "found")
        stream = (
            self.world.read(source, is_stream=True).options(subscribe=step.topic, startingOffsets="earliest").load()
        )
        joined = stream.join(right.withColumnRenamed("partition", "in"), stream["offset"] == right["found"], "left")
        query = (
            joined.select("partition", "offset", "value", "in", "found")
            .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
            .option("checkpointLocation", str(self._checkpoint(source)))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS_MAX)
        return rows

    def _checkpoint(self, source: str) -> Path:
        return self.world.folder / f"stream-{self.streams}" / source


def _ask(step: Ask, frame: "DataFrame") -> Answer:
    match step.how:
        case "count":
            return [(frame.count(),)]
        case "rows":
            # By the frame's own plan, which Spark makes once.
            return frame.collect()
        case "new rows":
            return frame.select("*").collect()
        case "first":
            plain = [name for name in frame.columns if name != HEADERS]
            return frame.orderBy(*PLACE, *plain).select(*PLACE).limit(step.count).collect()
        case _:
            return frame.groupBy("topic", "partition").agg({"offset": "sum", "*": "count"}).collect()


def _answer(ask: Callable[[str], Answer], source: str) -> tuple[str, Any]:
    try:
        return "rows", sorted((_plain(row) for row in ask(source)), key=repr)
    except Exception as error:  # an error is an answer, too: the other source has to fail as well
        return FAILED, f"{type(error).__name__}: {str(error)[:2000]}"


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return tuple(_plain(each) for each in value)
    return value


def _shown(answer: tuple[str, Any]) -> str:
    return answer[1] if answer[0] == FAILED else f"{len(answer[1])} rows: {answer[1][:50]}"
