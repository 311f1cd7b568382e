"""Kafka's clients read what transactions left behind, at both isolation levels: they step over markers and over what
the archive left out, and come to the end of the log.
"""

import asyncio
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import aiokafka
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client_libraries.transactional_writer import (
    COMMITTED,
    SECONDS_MAX,
    Found,
    Level,
    Log,
    Writer,
    row_of,
)
from tests.support.processes import provided
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory
from tools import go_clients

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition as KafkaPythonPartition

LEVELS: tuple[Level, ...] = (COMMITTED, "read_uncommitted")
PHASES = ("intake", "archive", "both")

pytestmark = pytest.mark.timeout(300)


def fill(broker: Penstock, topic: str, phase: str) -> Log:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS_MAX)
    writer = Writer(broker, topic)
    writer.plain("p0", "p1", "p2")
    writer.begin(0)
    writer.write(0, "a0", "a1", "a2")
    writer.begin(1)
    writer.write(1, "b0", "b1")
    writer.write(0, "a3")
    writer.abort(1)
    writer.plain("p3")
    writer.commit(0)
    if phase != "intake":
        writer.archive()
    writer.begin(1)
    writer.write(1, "c0", "c1")
    writer.abort(1)
    if phase == "archive":
        writer.archive()  # nothing but what was aborted
    writer.begin(1)
    writer.write(1, "d0")
    writer.commit(1)
    writer.begin(0)
    writer.write(0, "e0", "e1")
    writer.abort(0)
    if phase == "archive":
        writer.archive()
    if topic.endswith("-go"):  # it tells of records alone, not of its position
        writer.plain("the end")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends"})
    _, writer.log.end = consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS_MAX)
    consumer.close()
    return writer.log


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    provided(PENSTOCK)
    with ExitStack() as stack:
        factory = PenstockFactory(folder=tmp_path_factory.mktemp("committed"), stack=stack)
        yield factory(options={"archive-interval-s": "86400"})


@pytest.fixture(scope="module")
def logs(broker: Penstock) -> Mapping[str, Log]:
    topics = [(phase, suffix) for phase in PHASES for suffix in ("", "-go")]
    return {f"{phase}{suffix}": fill(broker, f"{phase}{suffix}", phase) for phase, suffix in topics}


@pytest.fixture(params=PHASES)
def log(request: pytest.FixtureRequest, logs: Mapping[str, Log]) -> Log:
    return logs[request.param]


@pytest.fixture(params=[phase if phase == "both" else pytest.param(phase, marks=pytest.mark.slow) for phase in PHASES])
def whole_log(request: pytest.FixtureRequest, logs: Mapping[str, Log]) -> Log:
    """One with both, for the clients that read no other one in each run."""
    return logs[request.param]


def starts(log: Log) -> range:
    return range(0, log.end, 3)


def in_time() -> Iterator[None]:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        yield
    raise AssertionError("the consumer did not come to the end of the log")


@pytest.mark.parametrize("level", LEVELS)
def test_librdkafka(broker: Penstock, log: Log, level: Level) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": level})
    try:
        for first in starts(log):
            found: Found = []
            place = TopicPartition(log.topic, 0, first)
            consumer.assign([place])
            for _ in in_time():
                message = consumer.poll(0.2)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append(row_of(message))
                (position,) = consumer.position([place])
                if position.offset == log.end or found[-1:] == log.shown(level)[-1:]:
                    break
            assert found == log.shown(level, first)
    finally:
        consumer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_librdkafka_tells_the_end_of_the_partition(broker: Penstock, whole_log: Log, level: Level) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(whole_log.topic, 0, 0)])
        for _ in in_time():
            message = consumer.poll(1.0)
            error = None if message is None else message.error()
            if message is not None and error is not None:
                assert error.name() == "_PARTITION_EOF"
                assert message.offset() == whole_log.end
                break
    finally:
        consumer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_kafka_python(broker: Penstock, whole_log: Log, level: Level) -> None:
    place = KafkaPythonPartition(whole_log.topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=level)
    try:
        consumer.assign([place])
        assert consumer.end_offsets([place])[place] == whole_log.end
        for first in starts(whole_log):
            found: Found = []
            consumer.seek(place, first)
            for _ in in_time():
                for records in consumer.poll(200).values():
                    found += [(record.offset, record.value.decode()) for record in records]
                if consumer.position(place) == whole_log.end:
                    break
            assert found == whole_log.shown(level, first)
    finally:
        consumer.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_aiokafka(broker: Penstock, whole_log: Log, level: Level) -> None:
    place = aiokafka.TopicPartition(whole_log.topic, 0)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=level, auto_offset_reset="none"
    )
    await consumer.start()
    try:
        consumer.assign([place])
        for first in starts(whole_log):
            found: Found = []
            consumer.seek(place, first)
            async with asyncio.timeout(SECONDS_MAX):
                while await consumer.position(place) < whole_log.end:
                    for records in (await consumer.getmany(place, timeout_ms=200)).values():
                        found += [(record.offset, (record.value or b"").decode()) for record in records]
            assert found == whole_log.shown(level, first)
    finally:
        await consumer.stop()


@pytest.fixture(scope="module")
def java_reader(compile_java: Callable[[Path], JavaProgram]) -> JavaProgram:
    return compile_java(Path(__file__).parents[1] / "java" / "IsolatedReader.java")


@pytest.mark.parametrize("level", LEVELS)
def test_java(broker: Penstock, whole_log: Log, level: Level, java_reader: JavaProgram) -> None:
    firsts = [str(first) for first in starts(whole_log)]
    printed = java_reader.run(broker.bootstrap, whole_log.topic, level, str(whole_log.end), *firsts)
    found: dict[int, Found] = {}
    first = -1
    for line in printed.splitlines():
        head, _, tail = line.partition(" ")
        if head == "from":
            first = int(tail)
            found[first] = []
        else:
            found[first].append((int(head), tail))
    assert found == {first: whole_log.shown(level, first) for first in starts(whole_log)}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("phase", PHASES)
def test_franz_go(broker: Penstock, logs: Mapping[str, Log], phase: str, level: Level, tmp_path: Path) -> None:
    log = logs[f"{phase}-go"]
    ends = tmp_path / "ends"
    ends.write_text(str(log.end))
    program = provided(go_clients.go_client("torture"))
    command = [str(program), "consume", broker.bootstrap, log.topic, "1", str(ends), level]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    rows = [line.split(maxsplit=4) for line in done.stdout.splitlines() if line.startswith("R ")]
    assert [(int(offset), value) for _, _, _, offset, value in rows] == log.shown(level)


def test_aborted_records_are_in_no_file_of_the_lake(broker: Penstock, logs: Mapping[str, Log]) -> None:
    log = logs["archive"]
    (folder,) = (broker.data / "store" / "lake").glob(f"{log.topic}-????????????????????????????????/data")
    rows = pq.read_table(folder, columns=["offset", "value"])
    found = zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert sorted((offset, value.decode()) for offset, value in found) == log.shown(COMMITTED)
