"""One run: a load of transactions, calm at first and then while agents are killed, and the views compared after it.

Rule: it is bounded by its minutes and what is waited for; what it starts ends with it. Three times everything is
compared: as the load left it, partly archived; with all of it archived and a new tail; and with everything archived. At
the last two the bucket is clean, and is listed.
"""

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.limits import COMPACTION_CHECK_INTERVAL_S
from tests.agreement.compare import Finding, View, audit, compare
from tests.agreement.freshness import Ages, TablePoller, ages, of_topics, stream_times, table_times
from tests.agreement.one_copy import Copies, list_copies, one_copy
from tests.agreement.producer import Load
from tests.agreement.views import SparkViews, Stream, kafka_view
from tests.agreement.world import LOAD_OPTIONS, QUIET_OPTIONS, Ends, Producers, World
from tests.support.lake.bucket_listing import INTAKE, PARQUET, ListedBucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

WARM_BATCHES, WARM_SECONDS_MAX = 6, 90.0
"""The load's time begins when the stream has had so many batches: before, Spark's Java and the workers are cold."""
CALM_SHARE = 0.4
"""Of the load's time, without kills."""
STREAM_RESTART_SHARE = 0.7
POLLED_TOPICS_MAX = 10
CLEAN_SECONDS_MAX = 120.0
SETTLED_SECONDS = 2 * COMPACTION_CHECK_INTERVAL_S
"""Nothing was merged for so long: there is nothing to merge."""
TAIL_PRODUCER_FIRST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a run is told. `kills`: at least so many, or the run counts as failed."""

    folder: Path
    topics: int
    partitions: int
    seconds: float
    seed: int
    processes: int = 2
    producers: int = 4
    """In each process."""
    records: int = 100
    """Of a transaction, on the average."""
    pause_ms: int = 0
    archive_interval_s: int = 30
    tail_seconds: float = 5.0
    kills_min: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Ages of records by what shows them, produced in calm, and under kills."""

    table: dict[str, Ages]
    stream: dict[str, Ages]
    polled: int
    """How many topics' tables were polled."""


@dataclass(slots=True, kw_only=True)
class RunReport:
    """What a run found."""

    settings: RunSettings
    figures: dict[str, float] = field(default_factory=dict[str, float])
    steps: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """What was done, and the seconds that it took."""
    findings: list[tuple[str, Finding]] = field(default_factory=list[tuple[str, Finding]])
    """After which step, and what was found."""
    problems: list[str] = field(default_factory=list[str])
    """What makes the run void or shows a fault that is not one of a view."""
    freshness: Freshness | None = None

    @property
    def is_well(self) -> bool:
        return not self.findings and not self.problems


@dataclass(slots=True, kw_only=True)
class Run:
    """State of a run, with a Spark session that knows Iceberg and our source."""

    settings: RunSettings
    spark: "SparkSession"
    report: RunReport = field(init=False)
    _spans: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of time, in ms, by what was done in them."""
    _row_counts: dict[str, int] = field(default_factory=dict[str, int])
    """Of data files, by their keys."""
    _never: threading.Event = field(default_factory=threading.Event)

    def run(self) -> RunReport:
        settings = self.settings
        self.report = RunReport(settings=settings)
        options = {**LOAD_OPTIONS, "archive-interval-s": str(settings.archive_interval_s)}
        with ExitStack() as stack:
            world = World(
                folder=settings.folder, topics=settings.topics, partitions=settings.partitions, options=options
            )
            self._step("start the cluster", lambda: stack.enter_context(world))
            views = SparkViews(spark=self.spark, world=world, folder=settings.folder)
            stream = Stream(spark=self.spark, minio=world.minio, folder=settings.folder / "stream")
            poller = TablePoller(topics=world.topic_names[:POLLED_TOPICS_MAX], http=lambda: world.http)
            stack.callback(stream.stop)
            stack.callback(poller.stop)
            notes = self._step("load", lambda: self._load(world, stack, stream, poller))
            self._step("let transactions end", world.log_ends)
            kafka = self._compare_as_left(views, notes)
            self._judge_freshness(kafka, notes, poller, stream)

            self._step("restart agents", lambda: world.restart(QUIET_OPTIONS))
            self._archive_all(world)
            ends = world.log_ends()
            notes = pa.concat_tables([notes, self._step("load a tail", lambda: self._load_tail(world, stack))])
            world.log_ends()
            self._compare_with_tail(views, stream, notes, ends)

            self._archive_all(world)
            self._compare_archived(views, notes)
            self.report.problems += world.died()
            self._count(world, stream, notes)
        return self.report

    def _load(self, world: World, stack: ExitStack, stream: Stream, poller: TablePoller) -> pa.Table:
        settings, chance = self.settings, random.Random(self.settings.seed)
        stream.start()
        poller.start()
        producers = Producers.start(world, stack, "producers", self._loads(world, "stop", 0))
        warm_s = time.monotonic() + WARM_SECONDS_MAX
        while len(stream.done_ms) < WARM_BATCHES and time.monotonic() < warm_s:
            self._never.wait(0.2)
        began_s, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        calm_s = settings.seconds * CALM_SHARE
        self._never.wait(calm_s)
        calm_ms = time.time_ns() // 1_000_000
        self.report.figures["load average of the machine"] = os.getloadavg()[0]
        world.kill_at_random(chance, began_s + settings.seconds * STREAM_RESTART_SHARE, self._never)
        stream.restart()
        world.kill_at_random(chance, began_s + settings.seconds, self._never)
        while world.kills < settings.kills_min:
            world.kill_at_random(chance, time.monotonic() + 15, self._never)
        end_ms = time.time_ns() // 1_000_000
        notes, late = producers.stop()
        self.report.problems += late
        # So that the last records are archived, too.
        self._never.wait(settings.archive_interval_s + 10)
        poller.stop()
        stream.finish()
        archive_ms = settings.archive_interval_s * 1000
        self._spans = {
            "calm": (
                began_ms,
                calm_ms - min(archive_ms, (calm_ms - began_ms) // 3),
            ),
            "kills": (calm_ms, end_ms),
        }
        return notes

    def _loads(self, world: World, stop_name: str, producer_first: int) -> list[Load]:
        settings = self.settings
        return [
            Load(
                bootstrap=world.bootstrap,
                stop_file=str(settings.folder / stop_name),
                topics=settings.topics,
                partitions=settings.partitions,
                producer_first=producer_first + number * settings.producers,
                producers=settings.producers,
                records=settings.records,
                pause_ms=settings.pause_ms,
                seed=settings.seed,
            )
            for number in range(settings.processes)
        ]

    def _load_tail(self, world: World, stack: ExitStack) -> pa.Table:
        producers = Producers.start(world, stack, "tail", self._loads(world, "stop-tail", TAIL_PRODUCER_FIRST))
        self._never.wait(self.settings.tail_seconds)
        notes, late = producers.stop()
        self.report.problems += late
        return notes

    def _compare_as_left(self, views: SparkViews, notes: pa.Table) -> View:
        kafka = self._step("read by Kafka", lambda: kafka_view(views.world))
        self._found("as the load left it", audit(kafka, notes))
        self._await_tail_manifest()
        self._found("as the load left it", compare(kafka, self._step("read as a batch", views.batch)))
        return kafka

    def _compare_with_tail(self, views: SparkViews, stream: Stream, notes: pa.Table, ends: Ends) -> None:
        stage = "archive and tail"
        kafka = self._step("read by Kafka", lambda: kafka_view(views.world))
        self._found(stage, audit(kafka, notes))
        self._await_tail_manifest()
        self._found(stage, compare(kafka.below(ends), self._step("read the tables", views.table)))
        self._found(stage, compare(kafka, self._step("read as a batch", views.batch)))
        self._step("let the stream finish", stream.finish)
        stream.stop()
        self._found(stage, compare(kafka, self._step("read what the stream wrote", stream.view)))
        copies = self._step("list the bucket", lambda: list_copies(views.world.bucket))
        self._found(stage, one_copy(copies, kafka))
        self.report.figures["records in the tail"] = len(copies.tail)
        if not len(copies.tail):
            self.report.problems.append("there was no tail to be compared")

    def _compare_archived(self, views: SparkViews, notes: pa.Table) -> None:
        stage = "all archived"
        kafka = self._step("read by Kafka", lambda: kafka_view(views.world))
        self._found(stage, audit(kafka, notes))
        self._await_tail_manifest()
        self._found(stage, compare(kafka, self._step("read the tables", views.table)))
        self._found(stage, compare(kafka, self._step("read as a batch", views.batch)))
        copies: Copies = self._step("list the bucket", lambda: list_copies(views.world.bucket))
        self._found(stage, one_copy(copies, kafka))
        if len(copies.tail):
            self.report.problems.append(f"{len(copies.tail)} records are left in the intake, and all was archived")
        self.report.figures |= {
            "records": len(kafka),
            "data files": copies.data_files,
            "intake objects left": copies.intake_objects,
        }

    def _archive_all(self, world: World) -> None:
        """Archived, and the garbage collector has taken what was there before."""
        before = set(filter(INTAKE.fullmatch, world.bucket.keys()))
        self._step("archive everything", world.archive)
        began_s = unsettled_s = time.monotonic()
        while (left := (before & world.bucket.keys()) | self._merged_away(world)) or (
            time.monotonic() - unsettled_s < SETTLED_SECONDS
        ):
            if left:
                unsettled_s = time.monotonic()
            if time.monotonic() - began_s > CLEAN_SECONDS_MAX:
                first = min(left, default="none")
                self.report.problems.append(f"{len(left)} objects are not cleaned up, the first: {first}")
                break
            self._never.wait(1)
        self.report.steps.append(("wait for the cleaner", time.monotonic() - began_s))

    def _merged_away(self, world: World) -> set[str]:
        """All data files with rows, while some of them are not the tables' newest ones: those go with the snapshots
        before. A file without rows, where all that it stands for is void, is in no table."""
        bucket = world.bucket
        try:
            files = {key for key in filter(PARQUET.fullmatch, bucket.keys()) if self._row_count(bucket, key)}
        except FileNotFoundError as error:
            return {str(error)}  # it went meanwhile
        tables = world.tables()
        is_settled = not any(table["older_files"] for table in tables)
        return set() if is_settled and len(files) == sum(table["files"] for table in tables) else files

    def _row_count(self, bucket: ListedBucket, key: str) -> int:
        """Of a data file, by its footer; a key is one content indefinitely."""
        if key not in self._row_counts:
            with bucket.files.open_input_file(key) as file:
                self._row_counts[key] = pq.read_metadata(file).num_rows
        return self._row_counts[key]

    def _await_tail_manifest(self) -> None:
        """It follows what is committed within its interval, a second, and the time of a put."""
        self._never.wait(3)

    def _judge_freshness(self, kafka: View, notes: pa.Table, poller: TablePoller, stream: Stream) -> None:
        polled = of_topics(kafka, poller.topics)
        in_table, in_stream = table_times(polled, poller.seen), stream_times(kafka, stream.batches())
        self.report.freshness = Freshness(
            table={name: ages(polled, in_table, notes, span) for name, span in self._spans.items()},
            stream={name: ages(kafka, in_stream, notes, span) for name, span in self._spans.items()},
            polled=len(poller.topics),
        )

    def _count(self, world: World, stream: Stream, notes: pa.Table) -> None:
        outcomes = notes["outcome"].to_pylist()
        self.report.figures |= {
            "transactions": len(outcomes),
            "committed": outcomes.count(1),
            "aborted": outcomes.count(0),
            "unknown": outcomes.count(-1),
            "agents killed": world.kills,
            "batches of the stream": len(stream.done_ms),
            "restarts of the stream": stream.restarts,
        }
        first_ms, end_ms = self._spans["calm"]
        calm = [told for began_ms, told in stream.durations_ms if first_ms <= began_ms < end_ms]
        self.report.figures["batches of the stream in calm"] = len(calm)
        for part in ("triggerExecution", "latestOffset", "addBatch", "walCommit", "commitOffsets") if calm else ():
            name = f"ms of a batch in calm, median: {part}"
            self.report.figures[name] = statistics.median(told.get(part, 0) for told in calm)

    def _found(self, stage: str, findings: Sequence[Finding]) -> None:
        for finding in findings:
            print(f"           DISAGREEMENT {stage}: {finding}", flush=True)
            self.report.findings.append((stage, finding))

    def _step(self, what: str, do: Callable[[], Result]) -> Result:
        began_s = time.monotonic()
        done = do()
        seconds = time.monotonic() - began_s
        self.report.steps.append((what, seconds))
        print(f"{seconds:7.1f} s  {what}", flush=True)
        return done
