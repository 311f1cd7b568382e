"""Offsets that are committed in transactions: copies of a topic are exact, and what is pending survives coordinators.

Rule: a copier commits its input's offsets with its output, and every other transaction is aborted; so each record is in
the output once to whoever reads what is committed. librdkafka speaks V1 (KIP-98), Java V2 (KIP-890), side by side.
"""

import itertools
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.static.primitive import i32Timedelta

from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from tests.integration.groups.group_offsets import ASK_AGAIN, coordinator
from tests.support.clients.kafka_requests import Entity, ask
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import wait_until
from tests.support.services.java import JavaProgram
from tests.support.services.local_services import PenstockFactory

SECONDS_MAX = 60.0
PARTITIONS = 3
RECORDS = 300
BATCH = 40
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
UNARCHIVED = {"archive-interval-s": "3600"}
"""Aborted records are there for as long as nothing is archived."""
NAMES = ("a", "b", "c")
COPIER_SOURCE = Path(__file__).parents[1] / "java" / "TransactionalCopier.java"

pytestmark = pytest.mark.timeout(300)


class Place(NamedTuple):
    """Agents, and where they tell their metrics."""

    bootstrap: str
    https: list[str]


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.slow)], ids=["one agent", "three agents"])
def place(request: pytest.FixtureRequest, penstock: PenstockFactory) -> Iterator[Place]:
    if request.param == 1:
        broker = penstock(settings=SETTINGS, options=UNARCHIVED)
        yield Place(broker.bootstrap, [broker.http])
    else:
        agents = three_agents(request.getfixturevalue("clusters"))
        yield Place(",".join(agents), [agent.http for agent in agents.values()])


def three_agents(clusters: ClusterFactory) -> dict[str, ClusterAgent]:
    cluster = clusters()
    started = [cluster.start(name, options=UNARCHIVED, settings=SETTINGS) for name in NAMES]
    return {agent.bootstrap: agent for agent in started}


def make_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        made.result(SECONDS_MAX)


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0


def copy_by_librdkafka(bootstrap: str, name: str, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Copy `in` to `out` in transactions, every other one of which is aborted; returns how many were committed.

    `meanwhile` is called in each transaction, between its offsets and its end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    consumer.subscribe(["in"])
    counts = Counter[bool]()
    try:
        while not is_copied(consumer):
            messages = consumer.consume(BATCH, 1.0)
            if messages:
                is_commit = counts.total() % 2 == 1
                copy_some(consumer, producer, messages, meanwhile, is_commit=is_commit)
                counts[is_commit] += 1
    finally:
        consumer.close()
    assert counts[False] > 0
    return counts[True]


def copy_some(
    consumer: Consumer, producer: Producer, messages: list[Message], meanwhile: Callable[[], None], *, is_commit: bool
) -> None:
    producer.begin_transaction()
    for message in messages:
        assert message.error() is None, message.error()
        producer.produce("out", message.value(), partition=message.partition() or 0)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS_MAX
    )
    meanwhile()
    if is_commit:
        producer.commit_transaction(SECONDS_MAX)
        return
    assert (
        producer.flush(SECONDS_MAX) == 0
    )  # what was not sent yet would be dropped, and there would be nothing to abort
    producer.abort_transaction(SECONDS_MAX)
    for each in consumer.committed(consumer.assignment(), SECONDS_MAX):
        consumer.seek(TopicPartition("in", each.partition, max(each.offset, 0)))


def is_copied(consumer: Consumer) -> bool:
    mine = consumer.assignment()
    committed = {each.partition: each.offset for each in consumer.committed(mine, SECONDS_MAX)} if mine else {}
    return committed == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def read_all(bootstrap: str, topic: str, isolation: str) -> list[int]:
    """The values of all records of a topic, as a consumer of that isolation level comes to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader of {topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[int] = []
    ended: set[int] = set()

    def is_at_end() -> bool:
        for message in consumer.consume(RECORDS, 0.2):
            error = message.error()
            if error is None:
                values.append(int(message.value() or b""))
            else:
                ended.add(message.partition() or 0)
        return len(ended) == PARTITIONS

    try:
        wait_until(is_at_end, f"the end of {topic}")
    finally:
        consumer.close()
    return sorted(values)


def versions_seen(place: Place, api: str) -> set[str]:
    """The versions in which the agents had requests of an API."""
    versions: set[str] = set()
    for http in place.https:
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=SECONDS_MAX) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("penstock_requests_total{") and f'api="{api}"' in line:
                    versions.add(line.split('version="')[1].split('"')[0])
    return versions


def offsets_told(bootstrap: str, group: str, *, is_stable: bool = True) -> dict[int, int] | ErrorCode:
    """What the group has committed for `in`, as the agent that is asked says; the first error where there is one."""
    topics = [{"name": "in", "partition_indexes": tuple(range(PARTITIONS))}]
    values = {"group_id": group, "topics": topics, "require_stable": is_stable}
    answer = ask(coordinator(bootstrap, group), ApiKey.OFFSET_FETCH, 7, values)
    rows = [row for topic in answer.topics for row in topic.partitions]
    errors = [answer.error_code, *(row.error_code for row in rows)]
    wrong = [error_code for error_code in errors if error_code is not ErrorCode.none]
    return wrong[0] if wrong else {row.partition_index: row.committed_offset for row in rows}


ALL = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_librdkafka_copies_each_record_once(place: Place) -> None:
    make_topics(place.bootstrap, "in", "out")
    fill(place.bootstrap, "in")
    assert copy_by_librdkafka(place.bootstrap, "copier") > 1
    assert read_all(place.bootstrap, "out", "read_committed") == list(range(RECORDS))
    assert len(read_all(place.bootstrap, "out", "read_uncommitted")) > RECORDS
    assert offsets_told(place.bootstrap.partition(",")[0], "copier") == ALL
    assert versions_seen(place, "TxnOffsetCommit") <= {"3", "4"}
    assert versions_seen(place, "AddOffsetsToTxn")


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
def test_java_copies_each_record_once_in_either_kind_of_group(
    place: Place, compile_java: Callable[[Path], JavaProgram], protocol: str
) -> None:
    make_topics(place.bootstrap, "in", "out")
    fill(place.bootstrap, "in")
    told = compile_java(COPIER_SOURCE).run(place.bootstrap, "copier", "in", "out", f"group.protocol={protocol}")
    transactions = Counter(told.split())
    assert transactions["commit"] > 1
    assert transactions["abort"] > 1
    assert read_all(place.bootstrap, "out", "read_committed") == list(range(RECORDS))
    assert len(read_all(place.bootstrap, "out", "read_uncommitted")) > RECORDS
    assert offsets_told(place.bootstrap.partition(",")[0], "copier") == ALL
    assert versions_seen(place, "TxnOffsetCommit") == {"5"}
    assert versions_seen(place, "AddOffsetsToTxn") == set()


@pytest.mark.slow  # each copies alone above
def test_copiers_of_both_protocols_share_one_input(place: Place, compile_java: Callable[[Path], JavaProgram]) -> None:
    make_topics(place.bootstrap, "in", "out")
    fill(place.bootstrap, "in")
    copy_by_librdkafka(place.bootstrap, "one")
    compile_java(COPIER_SOURCE).run(place.bootstrap, "other", "in", "out")
    assert read_all(place.bootstrap, "out", "read_committed") == sorted([*range(RECORDS), *range(RECORDS)])
    first = place.bootstrap.partition(",")[0]
    assert (offsets_told(first, "one"), offsets_told(first, "other")) == (ALL, ALL)


@pytest.mark.slow  # librdkafka 2.16 may wait for a group's dead coordinator indefinitely
@pytest.mark.parametrize("transaction", [1, 2], ids=["in one that aborts", "in one that commits"])
def test_a_copy_is_exact_although_the_groups_coordinator_dies_in_a_transaction(
    clusters: ClusterFactory, transaction: int
) -> None:
    agents = three_agents(clusters)
    everybody = ",".join(agents)
    make_topics(everybody, "in", "out")
    fill(everybody, "in")
    count = itertools.count(1)

    def kill_in_the_one() -> None:
        if next(count) == transaction:
            agents.pop(coordinator(next(iter(agents)), "copier")).process.kill()

    assert copy_by_librdkafka(everybody, "copier", kill_in_the_one) > 1
    assert len(agents) == len(NAMES) - 1
    rest = ",".join(agents)
    assert read_all(rest, "out", "read_committed") == list(range(RECORDS))
    assert offsets_told(next(iter(agents)), "copier") == ALL


class Transaction:
    """A producer of V2 that commits offsets alone, request by request, through agents of the test's choice."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        told = asked(
            bootstrap,
            ApiKey.INIT_PRODUCER_ID,
            5,
            {
                "transactional_id": transactional_id,
                "transaction_timeout": i32Timedelta.parse(timedelta(seconds=60)),
                "producer_id": -1,
                "producer_epoch": -1,
            },
        )
        assert told.error_code is ErrorCode.none
        self._producer = {"producer_id": told.producer_id, "producer_epoch": told.producer_epoch}

    def commit_offsets(self, bootstrap: str, group: str, offsets: Mapping[int, int]) -> ErrorCode:
        rows = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        values = {"group_id": group, "topics": [{"name": "in", "partitions": rows}]}
        told = ask(bootstrap, ApiKey.TXN_OFFSET_COMMIT, 5, {**self._named, **values})
        (error_code,) = {row.error_code for topic in told.topics for row in topic.partitions}
        return ErrorCode(error_code)

    def end(self, bootstrap: str, *, is_commit: bool) -> ErrorCode:
        told = asked(bootstrap, ApiKey.END_TXN, 5, {**self._named, "committed": is_commit})
        self._producer = {"producer_id": told.producer_id, "producer_epoch": told.producer_epoch}
        return ErrorCode(told.error_code)

    @property
    def _named(self) -> dict[str, Entity]:
        return {"transactional_id": self.transactional_id, **self._producer}


def asked(bootstrap: str, api_key: ApiKey, version: int, values: Mapping[str, Entity]) -> Entity:
    """The answer that is no request to ask again."""
    answers: list[Entity] = []

    def is_answered() -> bool:
        answers[:] = [ask(bootstrap, api_key, version, values)]
        return answers[0].error_code not in ASK_AGAIN

    wait_until(is_answered, f"an answer to {api_key.name}")
    return answers[0]


@pytest.mark.parametrize("is_commit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_s13_pending_offsets_survive_the_groups_coordinator_whoever_ends_the_transaction(
    clusters: ClusterFactory, is_commit: bool
) -> None:
    agents = three_agents(clusters)
    make_topics(",".join(agents), "in")
    first = next(iter(agents))
    transaction = Transaction(first, "x")
    assert transaction.commit_offsets(coordinator(first, "g"), "g", {0: 2, 1: 3, 2: 4}) is ErrorCode.none
    assert transaction.end(first, is_commit=True) is ErrorCode.none
    killed = agents.pop(coordinator(first, "g"))
    assert transaction.commit_offsets(killed.bootstrap, "g", {0: 7}) is ErrorCode.none
    killed.process.kill()
    rest, other = agents
    wait_until(lambda: coordinator(rest, "g") in agents, "another coordinator")
    before = {0: 2, 1: 3, 2: 4}
    wait_until(lambda: offsets_told(rest, "g", is_stable=False) == before, "what was committed before")
    assert offsets_told(rest, "g") is ErrorCode.unstable_offset_commit
    assert transaction.commit_offsets(coordinator(rest, "g"), "g", {1: 8}) is ErrorCode.none
    ending = other if coordinator(rest, "g") == rest else rest
    assert transaction.end(ending, is_commit=is_commit) is ErrorCode.none
    assert offsets_told(rest, "g") == ({0: 7, 1: 8, 2: 4} if is_commit else before)


@pytest.mark.slow  # test_offsets asks such agents for plain commits
def test_s13_an_agent_that_does_not_coordinate_the_group_keeps_no_offsets(clusters: ClusterFactory) -> None:
    agents = three_agents(clusters)
    make_topics(",".join(agents), "in")
    first = next(iter(agents))
    transaction = Transaction(first, "x")
    right = coordinator(first, "g")
    for agent in agents:
        expected = ErrorCode.none if agent == right else ErrorCode.not_coordinator
        assert transaction.commit_offsets(agent, "g", {0: 7}) is expected
    assert transaction.end(first, is_commit=True) is ErrorCode.none
    assert offsets_told(first, "g") == {0: 7, 1: -1, 2: -1}
