"""Kafka's clients against one broker, and against a cluster of three agents: consumed is what was produced, from the
intake and from the archive alike.

Rule: whatever is done with the cluster is done through another agent than what was done before. The topics whose names
end in `archive` are archived before anybody reads them, the others never are.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client_libraries.aio import AioKafkaClient
from tests.support.client_libraries.confluent import ConfluentClient
from tests.support.client_libraries.interface import CODECS, Client, Place, Row, Rows, Send, as_consumed
from tests.support.client_libraries.java import JavaClient
from tests.support.client_libraries.kafka_python import KafkaPythonClient
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.processes import provided
from tests.support.services.etcd import Etcd
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

NAMES = ("confluent", "kafka-python", "aiokafka", "java")
PHASES = ("intake", "archive")
SEED = 20
LARGE_BYTES = 1_048_000
"""A value that fits into max.message.bytes (1,048,588) with what a codec adds to bytes that cannot be compressed."""
CODEC_PARTITIONS = 3
"""Two for small records, one for the large one: kafka-python cannot read a zstd batch above 1 MiB."""
MANY = 100
MANY_RECORDS = 30
AUTO_PARTITIONS = 7
FILLER_RECORDS, FILLER_BYTES = 70, 100_000
"""For each partition a MB, which every agent of three has to take of some."""
NOW_MS = 1_750_000_000_000

pytestmark = pytest.mark.timeout(300)


@dataclass(slots=True)
class BrokerAddresses:
    """What is under test, by the addresses of its agents: each is used in turn."""

    agents: Sequence[Penstock | ClusterAgent]
    _used_count: int = 0

    @property
    def _next(self) -> Penstock | ClusterAgent:
        self._used_count += 1
        return self.agents[self._used_count % len(self.agents)]

    @property
    def bootstrap(self) -> str:
        return self._next.bootstrap

    @property
    def http(self) -> str:
        return self._next.http


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.slow)], ids=["one broker", "three agents"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd: Etcd, minio: Minio
) -> Iterator[BrokerAddresses]:
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("clients")
    options = {"archive-interval-s": "86400", "read-cache-bytes": "1MiB"}
    # Records are kept indefinitely: their times are long past.
    settings = {"num.partitions": str(AUTO_PARTITIONS), "log.retention.ms": "-1"}
    with ExitStack() as stack:
        if request.param == 1:
            factory = PenstockFactory(folder=folder, stack=stack)
            yield BrokerAddresses([factory(options=options, settings=settings)])
        else:
            cluster = ClusterFactory(etcd=etcd, minio=minio, folder=folder, stack=stack)()
            yield BrokerAddresses([cluster.start(name, options=options, settings=settings) for name in ("a", "b", "c")])


@pytest.fixture(scope="module")
def clients(compile_java: Callable[[Path], JavaProgram]) -> dict[str, Client]:
    driver = compile_java(Path(__file__).parents[1] / "java" / "KafkaDriver.java")
    return {
        "confluent": ConfluentClient(),
        "kafka-python": KafkaPythonClient(),
        "aiokafka": AioKafkaClient(),
        "java": JavaClient(driver),
    }


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Client:
    return clients[request.param]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) if name == "java" else name for name in NAMES])
def light_client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Client:
    """Java, which starts a virtual machine for each call, is slow."""
    return clients[request.param]


def create_topics(bootstrap: str, topics: Mapping[str, int], **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, num_partitions=count, config=config) for name, count in topics.items()]
    for future in admin.create_topics(new).values():
        future.result(30)


def archive(broker: BrokerAddresses, *topics: str) -> None:
    request = Request(
        f"http://{broker.http}/api/archive",
        data=json.dumps({"topics": topics, "wait": True}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=120) as response:
        passes = json.load(response)["passes"]
    assert sorted(done["topic"] for done in passes) == sorted(topics)
    fill_read_caches(broker)


def fill_read_caches(broker: BrokerAddresses) -> None:
    """Drop what was produced from memory: consumers would get that in place of the archive's batches."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(FILLER_RECORDS):
        producer.produce("filler", bytes(FILLER_BYTES), partition=number % AUTO_PARTITIONS)
    assert producer.flush(60) == 0


def corpus(chance: random.Random) -> list[Row]:
    """Every shape of a record, then a run of ordinary ones that share batches."""
    shapes = [
        Row(key=b"key", value=b"value"),
        Row(key=None, value=b"no key"),
        Row(key=b"no value", value=None),
        Row(key=None, value=None),
        Row(key=b"", value=b"empty key"),
        Row(key=b"empty value", value=b""),
        Row(key=b"", value=b""),
        Row(key=b"h", value=b"repeated", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1"))),
        Row(key=b"h", value=b"null", headers=(("a", None), ("b", b""), ("", b"no name"))),
        Row(key=b"h", value=b"unicode", headers=(("Größe", "größer".encode()), ("\N{SNOWMAN}", bytes(range(256))))),
        Row(key=b"h", value=b"many", headers=tuple((f"name {n % 7}", b"%d" % n) for n in range(200))),
        Row(key=bytes(range(256)), value=bytes(range(256)) * 8),
        Row(key=b"t", value=b"the beginning of time", timestamp_ms=0),
        Row(key=b"t", value=b"a moment later", timestamp_ms=1),
    ]
    ordinary = [
        Row(key=b"key %d" % (n % 9), value=chance.randbytes(n % 40) + b"filling " * (n % 50)) for n in range(60)
    ]
    rows = [*shapes, *ordinary]
    return [
        row if b"time" in (row.value or b"") or row.timestamp_ms == 1 else replace(row, timestamp_ms=_moment(chance))
        for row in rows
    ]


def _moment(chance: random.Random) -> int:
    return NOW_MS + chance.randrange(-1_000_000, 1_000_000)


@pytest.fixture(scope="module")
def written(broker: BrokerAddresses, clients: dict[str, Client]) -> dict[Place, list[Row]]:
    """What every client sent with every codec, in both phases."""
    chance = random.Random(SEED)
    topics = [f"{name}-{phase}" for name in NAMES for phase in PHASES]
    create_topics(broker.bootstrap, dict.fromkeys(topics, CODEC_PARTITIONS * len(CODECS)))
    rows: dict[Place, list[Row]] = {}
    for name, client in clients.items():
        sends: list[Send] = []
        for number, codec in enumerate(CODECS):
            small = [row for row in corpus(chance) if client.can_send(row)]
            large = Row(key=b"large", value=chance.randbytes(LARGE_BYTES), timestamp_ms=_moment(chance))
            placed = [*((index % 2, row) for index, row in enumerate(small)), (2, large)]
            for phase in PHASES:
                for partition, row in placed:
                    place = (f"{name}-{phase}", number * CODEC_PARTITIONS + partition)
                    sends.append(Send(codec=codec, place=place, row=row))
                    rows.setdefault(place, []).append(as_consumed(row))
        client.produce(broker.bootstrap, sends)
    archive(broker, *(topic for topic in topics if topic.endswith("archive")))
    return rows


def test_every_client_reads_what_every_client_wrote(
    broker: BrokerAddresses, written: dict[Place, list[Row]], client: Client
) -> None:
    assert len(written) == len(PHASES) * len(NAMES) * len(CODECS) * CODEC_PARTITIONS
    assert client.ends(broker.bootstrap, list(written)) == {place: (0, len(rows)) for place, rows in written.items()}
    consumed = client.consume(broker.bootstrap, {place: (0, len(rows)) for place, rows in written.items()})
    for place, rows in written.items():
        assert consumed[place] == list(enumerate(rows)), place


@pytest.fixture(scope="module")
def many(broker: BrokerAddresses) -> dict[Place, list[Row]]:
    """A topic of many partitions per phase, with small batches and timestamps out of order."""
    create_topics(broker.bootstrap, {f"many-{phase}": MANY for phase in PHASES})
    rows = {
        (f"many-{phase}", partition): [
            Row(key=b"%d" % number, value=b"%d %d" % (partition, number), timestamp_ms=_time(partition, number))
            for number in range(MANY_RECORDS)
        ]
        for phase in PHASES
        for partition in range(MANY)
    }
    sends = [
        Send(codec="lz4", place=place, row=rows[place][number]) for number in range(MANY_RECORDS) for place in rows
    ]
    ConfluentClient().produce(broker.bootstrap, sends)
    archive(broker, "many-archive")
    return rows


def _time(partition: int, number: int) -> int:
    return NOW_MS + partition * 1_000 + number * 7 % MANY_RECORDS * 10


def test_every_client_reads_many_partitions_from_any_offset(
    broker: BrokerAddresses, many: dict[Place, list[Row]], client: Client
) -> None:
    ranges = {place: (place[1] * 7 % (MANY_RECORDS + 1), MANY_RECORDS) for place in many}
    consumed = client.consume(broker.bootstrap, ranges)
    for place, (first, _) in ranges.items():
        assert consumed[place] == list(enumerate(many[place]))[first:], place


def test_every_client_finds_any_time(broker: BrokerAddresses, many: dict[Place, list[Row]], client: Client) -> None:
    times = {
        (topic, partition): _time(partition, 0) + (partition * 10 - 15 if partition < 60 else partition % 30 * 10)
        for topic, partition in many
    }
    expected = {
        place: next((number for number, row in enumerate(many[place]) if row.timestamp_ms >= time_ms), None)
        for place, time_ms in times.items()
    }
    assert {None, 0} < set(expected.values())
    assert client.offsets_at(broker.bootstrap, times) == expected


def test_a_topic_with_append_times_shows_them_to_every_client(broker: BrokerAddresses, light_client: Client) -> None:
    topics = [f"append-{type(light_client).__name__}-{phase}" for phase in PHASES]
    create_topics(broker.bootstrap, dict.fromkeys(topics, 1), **{"message.timestamp.type": "LogAppendTime"})
    began_ms = int(time.time() * 1000) - 1_000
    sends = [
        Send(codec="gzip", place=(topic, 0), row=Row(value=b"%d" % n, timestamp_ms=1_000 + n))
        for n in range(20)
        for topic in topics
    ]
    ConfluentClient().produce(broker.bootstrap, sends)
    archive(broker, *(topic for topic in topics if topic.endswith("archive")))
    consumed = light_client.consume(broker.bootstrap, {(topic, 0): (0, 20) for topic in topics})
    for rows in ([row for _, row in consumed[topic, 0]] for topic in topics):
        assert [row.value for row in rows] == [b"%d" % n for n in range(20)]
        assert all(row.is_append_time and began_ms <= row.timestamp_ms <= time.time() * 1000 + 1_000 for row in rows)
    for time_ms in (began_ms, 1_001):
        found = light_client.offsets_at(broker.bootstrap, {(topic, 0): time_ms for topic in topics})
        assert found == {(topic, 0): 0 for topic in topics}


def test_a_topic_is_created_by_its_first_record(broker: BrokerAddresses, light_client: Client) -> None:
    topic = f"first-{type(light_client).__name__}"
    place = (topic, AUTO_PARTITIONS - 1)
    row = Row(key=b"first", value=b"light", timestamp_ms=NOW_MS)
    light_client.produce(broker.bootstrap, [Send(codec="none", place=place, row=row)])
    assert light_client.consume(broker.bootstrap, {place: (0, 1)}) == {place: [(0, row)]}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == AUTO_PARTITIONS


class Reading(threading.Thread):
    """A client that reads in the background; `result` waits for it."""

    def __init__(
        self, client: Client, bootstrap: str, ranges: Mapping[Place, tuple[int, int]], *, wait_ms: int
    ) -> None:
        super().__init__(name="reading", daemon=True)
        self._client, self._server, self._ranges, self._wait_ms = client, bootstrap, ranges, wait_ms
        self._assigned = threading.Event()
        self._outcome: Rows | BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._outcome = self._client.consume(
                self._server, self._ranges, assigned=self._assigned.set, wait_ms=self._wait_ms
            )
        except BaseException as error:
            self._outcome = error
            self._assigned.set()

    def wait_assigned(self) -> None:
        assert self._assigned.wait(60)

    def result(self) -> Rows:
        self.join(120)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None, "the client is still reading"
        return self._outcome


def test_a_consumer_that_waits_is_answered_when_something_comes(broker: BrokerAddresses, light_client: Client) -> None:
    place = (f"wait-{type(light_client).__name__}", 0)
    create_topics(broker.bootstrap, {place[0]: 1})
    reading = Reading(light_client, broker.bootstrap, {place: (0, 1)}, wait_ms=20_000)
    reading.wait_assigned()
    row = Row(key=b"k", value=b"at last", timestamp_ms=NOW_MS)
    ConfluentClient().produce(broker.bootstrap, [Send(codec="none", place=place, row=row)])
    began = time.monotonic()
    assert reading.result() == {place: [(0, row)]}
    assert time.monotonic() - began < 10, "the answer came when the fetch's own time was over, not before"


def test_a_consumer_of_many_partitions_follows_those_that_grow(broker: BrokerAddresses, light_client: Client) -> None:
    """Most fetches of a session name no partition at all (KIP-227)."""
    topic = f"grow-{type(light_client).__name__}"
    create_topics(broker.bootstrap, {topic: MANY})
    ends = {(topic, partition): 4 if partition % 10 == 3 else 1 for partition in range(MANY)}
    reading = Reading(light_client, broker.bootstrap, {place: (0, end) for place, end in ends.items()}, wait_ms=500)
    reading.wait_assigned()
    for number in range(4):
        row = Row(key=b"k", value=b"%d" % number, timestamp_ms=NOW_MS + number)
        sends = [Send(codec="none", place=place, row=row) for place, end in ends.items() if number < end]
        ConfluentClient().produce(broker.bootstrap, sends)
    consumed = reading.result()
    assert {place: [offset for offset, _ in rows] for place, rows in consumed.items()} == {
        place: list(range(end)) for place, end in ends.items()
    }
