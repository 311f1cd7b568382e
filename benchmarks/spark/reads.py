"""`make bench-spark`: Spark over Penstock beside Spark's Kafka connector over Apache Kafka, on the same records.

Rule: one Spark with two cores reads all of it, the ways in turn, round by round; the first round warms and is not
counted. What is printed are medians and ratios, connector / Penstock, so more is better. Both brokers run all the time,
Penstock on MinIO, archived before it is read; only the streams see its tail. Every answer is compared with the
connector's: a figure of a wrong answer is none.

Run: `.venv/bin/python -m benchmarks.spark.reads [--megabytes 300] [--rounds 3] [--quick]`. Rows are JSON lines.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from confluent_kafka import Producer

from benchmarks.cases import PeerName
from benchmarks.measure.exposition import STORE_REQUESTS, increase, scrape
from benchmarks.peers.brokers import KafkaPeer, PenstockPeer
from benchmarks.peers.java_tools import JavaTools, make_values
from benchmarks.peers.minio import BUCKET, MinioServer
from benchmarks.report.statistics import ratio
from benchmarks.spark import typed as spark_typed
from tools import jars, java_runtime
from tools.steps import SetupFailed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CATALOG = "penstock"
STORE = f"s3://{BUCKET}/penstock"
PARTITIONS = 8
SIZES = (1000, 100)
CONNECTOR, TABLE, SOURCE = "connector", "table", "source"
WAYS = (CONNECTOR, TABLE, SOURCE)
ARCHIVE_SECONDS_MAX = 600
FIRST_MS = int(time.time()) * 1000 - 3_600_000
"""Of the first record, of a millisecond each: young enough for any retention."""
FLUSH_MS_DEFAULT = 250
TAIL_SECONDS = 3.0
"""Until the bucket says where everything lies now."""
STREAM_TOPIC = "stream"
STREAM_RATE, STREAM_BATCH = 1_000, 50
"""Records a second, and how many are sent at once."""
STREAM_WARM_BATCHES = 3
TYPED_VALUES = 50_000
"""Different ones."""

Answer = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`ask` gets a frame of all records of a topic, and returns what it found. `columns`: those that it looks at.

    `narrow`: our source's options, given the topic's name, that leave the records that `ask` looks for. It takes
    no filters from Spark.
    """

    name: str
    ask: "Callable[[DataFrame], Answer]"
    columns: str
    narrow: Callable[[str], Mapping[str, str]] = lambda _: {}


def questions(records: int) -> Iterator[Question]:
    """What every topic is asked; `records`: how many it has."""
    from pyspark.sql import functions as F

    each = records // PARTITIONS
    times = [datetime.fromtimestamp(FIRST_MS / 1000 + second, UTC) for second in (records // 2000, records // 2000 + 1)]
    first, end = each // 2, each // 2 + 1000
    middle = f"offset >= {first} and offset < {end}"
    second = {"startingTimestamp": _milliseconds(times[0]), "endingTimestamp": _milliseconds(times[1])}
    yield Question(name="count", ask=lambda frame: [frame.count()], columns="offset")
    yield Question(
        name="1,000 offsets of a partition",
        ask=lambda frame: _row(frame.where(f"partition = 1 and {middle}"), F.count("*"), F.sum(F.length("value"))),
        columns="partition,offset,value",
        narrow=lambda topic: {
            "assign": json.dumps({topic: [1]}),
            "startingOffsets": json.dumps({topic: {"1": first}}),
            "endingOffsets": json.dumps({topic: {"1": end}}),
        },
    )
    yield Question(
        name="a second of timestamps",
        ask=lambda frame: [frame.where(f"timestamp >= '{times[0]}' and timestamp < '{times[1]}'").count()],
        columns="timestamp",
        narrow=lambda topic: {"subscribe": topic, **second},
    )
    yield Question(name="full value scan", ask=lambda frame: _row(frame, F.sum(F.crc32("value"))), columns="value")
    yield Question(
        name="all columns",
        ask=lambda frame: _row(
            frame,
            F.max("partition"),
            F.max("offset"),
            F.max("timestamp"),
            F.sum(F.length("key")),
            F.sum(F.length("value")),
        ),
        columns="key,value,partition,offset,timestamp",
    )


def _milliseconds(moment: datetime) -> str:
    return str(round(moment.timestamp() * 1000))


def _row(frame: "DataFrame", *aggregates: "Column") -> Answer:
    return tuple(frame.agg(*aggregates).collect()[0])


@dataclass(slots=True, kw_only=True)
class Bench:
    """Both brokers, and one Spark that reads them."""

    kafka: KafkaPeer
    penstock: PenstockPeer
    spark: "SparkSession"

    def frame(self, way: str, topic: str, columns: str, narrow: Mapping[str, str] | None = None) -> "DataFrame":
        """All records of a topic. Only our source has to be told which columns and records are looked at."""
        if way == TABLE:
            return self.spark.table(f"{CATALOG}.lake.`{topic}`")
        if way == SOURCE:
            reader = self.spark.read.format("penstock").options(**(narrow or {"subscribe": topic}))
            return reader.option("columns", columns).load(STORE)
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        return reader.option("subscribe", topic).load()

    def create(self, topic: str) -> None:
        """With both brokers."""
        for peer in (self.kafka, self.penstock):
            peer.create_topic(topic, PARTITIONS)

    def stream(self, way: str, topic: str) -> "DataFrame":
        if way == SOURCE:
            return self.spark.readStream.format("penstock").option("subscribe", topic).load(STORE)
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        return reader.option("subscribe", topic).load()


def fill(bootstraps: Sequence[str], topic: str, values: Sequence[bytes], megabytes: int) -> int:
    """The same records for each broker, dealt out to the partitions; returns how many."""
    records = megabytes * 1_000_000 * len(values) // sum(map(len, values)) // PARTITIONS * PARTITIONS
    for bootstrap in bootstraps:
        # `lz4` is what most run; a batch of this size is one of a busy producer.
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 20})
        for number in range(records):
            value, key = values[number % len(values)], b"k%d" % (number % 1000)
            while True:
                try:
                    producer.produce(topic, value, key, number % PARTITIONS, timestamp=FIRST_MS + number)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(ARCHIVE_SECONDS_MAX):
            raise RuntimeError(f"{bootstrap} did not take all records of {topic}")
    return records


def archive(peer: PenstockPeer, topic: str) -> float:
    """Archives all of a topic; seconds."""
    body = json.dumps({"topics": [topic], "wait": True}).encode()
    began = time.perf_counter()
    request = Request(f"http://{peer.http}/api/archive", body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=ARCHIVE_SECONDS_MAX) as answer:
        answer.read()
    return time.perf_counter() - began


def measure_reads(bench: Bench, topic: str, records: int, rounds: int) -> Iterator[dict[str, object]]:
    """A row for each question."""
    for question in questions(records):
        asked = {way: partial(_ask, bench, way, topic, question) for way in WAYS}
        yield in_turn(f"{topic}: {question.name}", asked, rounds)


def measure_typed(bench: Bench, rounds: int) -> Iterator[dict[str, object]]:
    """A row for each question about what records hold."""

    def ask(way: str, question: Callable[["DataFrame"], Answer]) -> Answer:
        frame = bench.frame(way, spark_typed.TOPIC, "value")
        return question(spark_typed.found(frame) if way == TABLE else spark_typed.decoded(frame))

    for name, question in spark_typed.questions():
        yield in_turn(f"Avro, {name}", {way: partial(ask, way, question) for way in WAYS}, rounds)


def in_turn(name: str, asked: Mapping[str, Callable[[], Answer]], rounds: int) -> dict[str, object]:
    """A row: medians of seconds. Raises where the ways' answers differ."""
    seconds: dict[str, list[float]] = {way: [] for way in asked}
    for number in range(rounds + 1):
        answers: dict[str, Answer] = {}
        for way in asked if number % 2 else reversed(list(asked)):
            began = time.perf_counter()
            answers[way] = asked[way]()
            if number:
                seconds[way].append(time.perf_counter() - began)
        if len(set(map(tuple, answers.values()))) != 1:
            raise RuntimeError(f"{name}: the ways differ: {answers}")
    return row_of(name, "s", {way: statistics.median(seconds[way]) for way in asked})


def _ask(bench: Bench, way: str, topic: str, question: Question) -> Answer:
    return question.ask(bench.frame(way, topic, question.columns, question.narrow(topic)))


def row_of(name: str, unit: str, figures: Mapping[str, float]) -> dict[str, object]:
    """Figures of each way, and how many times the connector's Penstock's are."""
    row: dict[str, object] = {"what": name, "unit": unit}
    row |= {way: float(f"{figures[way]:.4g}") for way in WAYS if way in figures}
    for way in (TABLE, SOURCE):
        if way in figures:
            row[f"connector/{way}"] = round(ratio(figures[CONNECTOR], figures[way]) or 0, 2)
    return row


@contextmanager
def writing(bootstraps: Sequence[str]) -> Iterator[None]:
    """While the block runs: records with the time at which they are sent, to each broker."""
    producers = [Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}) for bootstrap in bootstraps]
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.wait(STREAM_BATCH / STREAM_RATE):
            for _ in range(STREAM_BATCH):
                number += 1
                for producer in producers:
                    producer.produce(STREAM_TOPIC, b"%0100d" % number, None, number % PARTITIONS)
            for producer in producers:
                producer.poll(0)

    thread = threading.Thread(target=write, name="writer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for producer in producers:
            producer.flush(30)


def measure_stream(bench: Bench, rounds: int, seconds: int, folder: Path) -> dict[str, object]:
    """How old the newest record of a batch is when the batch has been read, trigger 0; medians of all batches."""
    from pyspark.sql import functions as F

    ages: dict[str, list[float]] = {CONNECTOR: [], SOURCE: []}
    with writing([bench.kafka.bootstrap, bench.penstock.bootstrap]):
        for number in range(rounds):
            for way in (CONNECTOR, SOURCE) if number % 2 else (SOURCE, CONNECTOR):
                found: list[float] = []

                def take(batch: "DataFrame", _: int, found: list[float] = found) -> None:
                    newest = batch.agg(F.max(F.unix_millis("timestamp"))).collect()[0][0]
                    if newest is not None:
                        found.append(time.time() - newest / 1000)

                query = (
                    bench.stream(way, STREAM_TOPIC)
                    .writeStream.foreachBatch(take)
                    .option("checkpointLocation", str(folder / f"checkpoint-{way}-{number}"))
                    .start()
                )
                try:
                    query.awaitTermination(seconds)
                finally:
                    query.stop()
                ages[way] += found[STREAM_WARM_BATCHES:]
    return row_of(
        "stream, 1,000 records/s: age of the newest, p50", "s", {w: statistics.median(a) for w, a in ages.items()}
    )


@contextmanager
def spark_session(minio: MinioServer, penstock: PenstockPeer, folder: Path) -> Iterator["SparkSession"]:
    """A Spark with two cores, the catalog, the source, and the connector."""
    from pyspark.sql import SparkSession

    from iceberg_export.spark.source import register

    home = java_runtime.java_home()
    sets = [jars.jar_folder("spark"), jars.jar_folder("spark-kafka")]
    if home is None or not all(one.exists() for one in sets):
        raise SetupFailed("Java or the jars of Spark are missing: run make setup-test")
    os.environ |= {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ |= minio.server.settings
    catalog = f"spark.sql.catalog.{CATALOG}"
    settings = {
        "spark.jars": ",".join(str(jar) for one in sets for jar in sorted(one.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": f"http://{penstock.http}/iceberg",
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.s3.access-key-id": minio.server.access_key,
        f"{catalog}.s3.secret-access-key": minio.server.secret_key,
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    try:
        yield session
    finally:
        session.stop()


def load(bench: Bench, topic: str, values: Sequence[bytes], megabytes: int) -> dict[str, Any]:
    """Fill a topic and archive it; a row of how fast that was, and what it cost."""
    with bench.penstock.restarted_with(("--flush-interval-ms", str(FLUSH_MS_DEFAULT))):
        before = scrape(bench.penstock.http)
        records = fill([bench.kafka.bootstrap, bench.penstock.bootstrap], topic, values, megabytes)
        seconds = archive(bench.penstock, topic)
        time.sleep(TAIL_SECONDS)
        requests = increase(before, scrape(bench.penstock.http), STORE_REQUESTS)
    size = records * sum(map(len, values)) / len(values)
    bench.penstock.settle()
    return {
        "what": f"{topic}: archive pass; requests of intake, archive, table and tail",
        "records": records,
        "mb_per_s": round(size / 1e6 / seconds, 1),
        "requests_per_gib": round(requests / (size / (1 << 30)), 1),
    }


def measure(bench: Bench, options: argparse.Namespace, folder: Path) -> Iterator[dict[str, object]]:
    """All rows."""
    for value_bytes in SIZES:
        topic = f"v{value_bytes}"
        megabytes = options.megabytes if value_bytes == max(SIZES) else options.megabytes // 4
        bench.create(topic)
        values: Sequence[bytes] = [value.encode() for value in make_values(value_bytes)]
        row = load(bench, topic, values, megabytes)
        yield row
        yield from measure_reads(bench, topic, row["records"], options.rounds)
    bench.kafka.create_topic(spark_typed.TOPIC, PARTITIONS)
    bench.penstock.create_topic(spark_typed.TOPIC, PARTITIONS, spark_typed.CONFIG)
    values = spark_typed.make_values(spark_typed.register(bench.penstock), TYPED_VALUES)
    yield load(bench, spark_typed.TOPIC, values, options.megabytes // 4)
    yield from measure_typed(bench, options.rounds)
    bench.create(STREAM_TOPIC)
    yield measure_stream(bench, options.rounds, options.stream_seconds, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--megabytes", type=int, default=300, help="of 1 KB values; of 100 B values, and of Avro, a quarter of it"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stream-seconds", type=int, default=20, help="of each way and round")
    parser.add_argument("--quick", action="store_true", help="little data, one round: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.megabytes, options.rounds, options.stream_seconds = 20, 1, 8
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        minio = MinioServer(folder / "minio")
        stack.callback(minio.stop)
        (folder / "tools").mkdir()
        kafka = KafkaPeer(folder / "kafka", JavaTools.prepare(folder / "tools"))
        places = ("agent", "--name", "bench", "--ledger", f"sqlite://{folder / 'ledger.sqlite'}", "--store", STORE)
        options_now = (*places, "--flush-interval-ms", "0")
        penstock = PenstockPeer(
            PeerName.MINIO, folder / "penstock", places=options_now, environment=minio.server.settings
        )
        for peer in (kafka, penstock):
            stack.callback(peer.remove)
            peer.start()
        spark = stack.enter_context(spark_session(minio, penstock, folder))
        for row in measure(Bench(kafka=kafka, penstock=penstock, spark=spark), options, folder):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
