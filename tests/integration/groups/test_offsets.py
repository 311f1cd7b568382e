"""Committed offsets, with real clients: the same whoever is asked first, and kept over restarts, snapshots and deaths.

Rule: no client here is a member of its group; what members may commit is told with the groups that they form.
"""

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from protocol.limits import PARTITIONS_PER_TOPIC_MAX
from storage.refs import SNAPSHOT_PREFIX, position_of_key
from tests.integration.groups.group_offsets import (
    ASK_AGAIN,
    CLIENTS,
    NUL,
    SECONDS_MAX,
    TELLING_NOTES,
    Committed,
    KafkaAdminClient,
    KafkaPartition,
    commit_request,
    coordinator,
    errors_of,
    offsets_by_coordinator,
    told_by,
    without_notes,
)
from tests.support.clients.kafka_requests import ask, framed, read_answer, read_frame
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import wait_until
from tests.support.processes import provided, stand_still
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

TOPIC = "t"
PARTITIONS = 3
SETTINGS = {"offsets.retention.check.interval.ms": "200", "offset.metadata.max.bytes": "100"}
OPTIONS = {"flush-interval-ms": "0", "snapshot-entries": "10"}
OFFSETS = {0: Committed(5, "five"), 2: Committed(7)}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 3], ids=["one broker", "three agents"])
def agents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd: Etcd, minio: Minio
) -> Iterator[Sequence[Penstock | ClusterAgent]]:
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("offsets")
    with ExitStack() as stack:
        started: list[Penstock | ClusterAgent] = []
        if request.param == 1:
            started.append(PenstockFactory(folder=folder, stack=stack)(settings=SETTINGS))
        else:
            cluster = ClusterFactory(etcd=etcd, minio=minio, folder=folder, stack=stack)()
            started += [cluster.start(name, settings=SETTINGS) for name in ("a", "b", "c")]
        create_topic(started[0].bootstrap, TOPIC, PARTITIONS)
        yield started


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


@pytest.mark.parametrize("committing", CLIENTS)
def test_what_a_client_commits_every_client_finds_through_every_agent(
    agents: Sequence[Penstock | ClusterAgent], committing: str
) -> None:
    for number, agent in enumerate(agents):
        group = f"{committing}-{number}"
        CLIENTS[committing].commit(agent.bootstrap, group, TOPIC, OFFSETS)
        CLIENTS[committing].commit(agent.bootstrap, group, TOPIC, {2: Committed(8, "eight")})
        now = {**OFFSETS, 2: Committed(8, "eight")}
        for other in agents:
            for name, client in CLIENTS.items():
                found = client.committed(other.bootstrap, group, TOPIC, PARTITIONS)
                assert found == (now if name == TELLING_NOTES else without_notes(now))


def test_commits_that_nobody_waits_for_are_told_and_the_last_one_counts(
    agents: Sequence[Penstock | ClusterAgent],
) -> None:
    results: list[tuple[KafkaError | None, int]] = []

    def committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        results.extend((error or each.error, each.offset) for each in partitions)

    consumer = Consumer(
        {
            "bootstrap.servers": agents[0].bootstrap,
            "group.id": "asynchronous",
            "enable.auto.commit": False,
            "on_commit": committed,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    # Commits that wait for the coordinator are sent after later ones by librdkafka: with a pause before the 91st, 22 of
    # 200 consumers sent 91 to 100 first.
    consumer.committed([TopicPartition(TOPIC, 0)], 30)
    for offset in range(1, 101):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=True)
    wait_until(lambda: consumer.poll(0.05) is None and len(results) == 100, "what became of the commits")
    consumer.close()
    assert sorted(results, key=lambda each: each[1]) == [(None, offset) for offset in range(1, 101)]
    assert [told_by(coordinator(agent.bootstrap, "asynchronous"), "asynchronous") for agent in agents] == [
        {TOPIC: {0: Committed(100)}}
    ] * len(agents)


def test_an_agent_that_is_not_the_coordinator_says_so(agents: Sequence[Penstock | ClusterAgent]) -> None:
    where = {coordinator(agent.bootstrap, "whose") for agent in agents}
    assert len(where) == 1
    for agent in agents:
        is_it = agent.bootstrap in where
        answer = ask(agent.bootstrap, ApiKey.OFFSET_COMMIT, 8, commit_request("whose", TOPIC, OFFSETS))
        expected = ErrorCode.none if is_it else ErrorCode.not_coordinator
        assert errors_of(answer) == dict.fromkeys(OFFSETS, expected)
    for agent in agents:
        found = told_by(agent.bootstrap, "whose")
        assert found == ({TOPIC: OFFSETS} if agent.bootstrap in where else ErrorCode.not_coordinator)


def test_offsets_and_groups_are_deleted_by_tools(agents: Sequence[Penstock | ClusterAgent]) -> None:
    for group in ("kept", "gone"):
        CLIENTS["admin"].commit(agents[0].bootstrap, group, TOPIC, OFFSETS)
    admin = KafkaAdminClient(bootstrap_servers=agents[-1].bootstrap)
    try:
        admin.delete_group_offsets("kept", [KafkaPartition(TOPIC, 0)])
        admin.delete_groups(["gone"])
    finally:
        admin.close()
    assert CLIENTS["confluent"].committed(agents[0].bootstrap, "kept", TOPIC, PARTITIONS) == {2: Committed(7)}
    where = coordinator(agents[0].bootstrap, "gone")
    assert told_by(where, "gone") == {}
    again = ask(where, ApiKey.DELETE_GROUPS, 2, {"groups_names": ["gone", "gone"]})
    assert [(each.group_id, each.error_code) for each in again.results] == [("gone", ErrorCode.group_id_not_found)]


def test_offsets_that_are_committed_for_a_time_go(agents: Sequence[Penstock | ClusterAgent]) -> None:
    where = coordinator(agents[0].bootstrap, "brief")
    request = commit_request("brief", TOPIC, {0: Committed(5)}, retention_ms=1_000)
    kept = commit_request("brief", TOPIC, {1: Committed(6)}, retention_ms=-1)
    assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 4, request)) == {0: ErrorCode.none}
    assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 4, kept)) == {1: ErrorCode.none}
    wait_until(lambda: told_by(where, "brief") == {TOPIC: {1: Committed(6)}}, "the end of what was brief")


def test_a_deleted_topic_takes_its_offsets_with_it(agents: Sequence[Penstock | ClusterAgent]) -> None:
    admin = AdminClient({"bootstrap.servers": agents[0].bootstrap})
    create_topic(agents[0].bootstrap, "short-lived", 1)
    where = coordinator(agents[0].bootstrap, "orphan")
    for topic in ("short-lived", TOPIC):
        errors = errors_of(ask(where, ApiKey.OFFSET_COMMIT, 8, commit_request("orphan", topic, {0: Committed(5)})))
        assert errors == {0: ErrorCode.none}
    admin.delete_topics(["short-lived"])["short-lived"].result(30)
    create_topic(agents[-1].bootstrap, "short-lived", 1)
    assert told_by(where, "orphan") == {TOPIC: {0: Committed(5)}}


class TestBadInput:
    def test_every_partition_has_its_own_error(self, agents: Sequence[Penstock | ClusterAgent]) -> None:
        where = coordinator(agents[0].bootstrap, "strange")
        long, fits = "x" * 101, "\N{GRINNING FACE}" * 50
        rows = {0: Committed(1, long), 1: Committed(1, fits), 2: Committed(-7), 3: Committed(1), -1: Committed(1)}
        assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 8, commit_request("strange", TOPIC, rows))) == {
            0: ErrorCode.offset_metadata_too_large,
            1: ErrorCode.none,
            2: ErrorCode.none,
            3: ErrorCode.unknown_topic_or_partition,
            -1: ErrorCode.unknown_topic_or_partition,
        }
        assert told_by(where, "strange") == {TOPIC: {1: Committed(1, fits), 2: Committed(-7)}}
        nowhere = ask(where, ApiKey.OFFSET_COMMIT, 8, commit_request("strange", "nowhere", OFFSETS))
        assert errors_of(nowhere) == dict.fromkeys(OFFSETS, ErrorCode.unknown_topic_or_partition)

    def test_a_generation_of_nobody_is_refused_and_makes_no_group(
        self, agents: Sequence[Penstock | ClusterAgent]
    ) -> None:
        where = coordinator(agents[0].bootstrap, "nobody")
        request = commit_request("nobody", TOPIC, {0: Committed(1)}, generation=3, member="m")
        assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 8, request)) == {0: ErrorCode.illegal_generation}
        assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 9, request)) == {0: ErrorCode.group_id_not_found}
        deleted = ask(where, ApiKey.DELETE_GROUPS, 2, {"groups_names": ["nobody"]})
        assert [each.error_code for each in deleted.results] == [ErrorCode.group_id_not_found]
        forgotten = ask(where, ApiKey.OFFSET_DELETE, 0, {"group_id": "nobody", "topics": []})
        assert forgotten.error_code is ErrorCode.group_id_not_found

    def test_a_group_without_a_name_may_keep_offsets_and_be_deleted(
        self, agents: Sequence[Penstock | ClusterAgent]
    ) -> None:
        where = coordinator(agents[0].bootstrap, "")
        assert errors_of(ask(where, ApiKey.OFFSET_COMMIT, 8, commit_request("", TOPIC, {0: Committed(1)}))) == {
            0: ErrorCode.none
        }
        assert told_by(where, "") == {TOPIC: {0: Committed(1)}}
        forgotten = ask(where, ApiKey.OFFSET_DELETE, 0, {"group_id": "", "topics": []})
        assert forgotten.error_code is ErrorCode.invalid_group_id
        deleted = ask(where, ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]})
        assert [each.error_code for each in deleted.results] == [ErrorCode.none]
        assert told_by(where, "") == {}

    def test_nothing_named_is_answered_by_nothing(self, agents: Sequence[Penstock | ClusterAgent]) -> None:
        where = coordinator(agents[0].bootstrap, "nothing")
        empty = {"group_id": "nothing", "generation_id_or_member_epoch": -1, "member_id": "", "topics": []}
        assert ask(where, ApiKey.OFFSET_COMMIT, 8, empty).topics == ()
        assert ask(where, ApiKey.OFFSET_FETCH, 8, {"groups": []}).groups == ()
        assert ask(where, ApiKey.DELETE_GROUPS, 2, {"groups_names": []}).results == ()


def test_as_many_partitions_as_a_topic_may_have_are_committed_and_told_at_once(
    agents: Sequence[Penstock | ClusterAgent],
) -> None:
    create_topic(agents[0].bootstrap, "wide", PARTITIONS_PER_TOPIC_MAX)
    where = coordinator(agents[0].bootstrap, "wide")
    rows = {index: Committed(index, "m" * 50) for index in range(PARTITIONS_PER_TOPIC_MAX)}
    errors = errors_of(ask(where, ApiKey.OFFSET_COMMIT, 8, commit_request("wide", "wide", rows)))
    assert set(errors.values()) == {ErrorCode.none}
    assert len(errors) == len(rows)
    assert told_by(where, "wide") == {"wide": rows}
    named = [{"name": "wide", "partitions": [{"partition_index": index} for index in rows]}]
    assert ask(where, ApiKey.OFFSET_DELETE, 0, {"group_id": "wide", "topics": named}).error_code is ErrorCode.none
    assert told_by(where, "wide") == {}


class TestOutliving:
    def test_a_consumer_reads_on_where_it_stopped_after_restarts(self, penstock: PenstockFactory) -> None:
        broker = penstock(options=OPTIONS)
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        for number in range(2):
            produce(broker.bootstrap, 20 * number, 20)
            assert read_on(broker.bootstrap, "steady", 15) == list(range(15 * number, 15 * number + 15))
            if number == 0:
                wait_for_snapshot(broker)
            assert broker.process.stop() == 0
            broker = penstock(data=broker.data, options=OPTIONS)
        where = coordinator(broker.bootstrap, "steady")
        assert told_by(where, "steady") == {TOPIC: {0: Committed(30, "at 30" + NUL)}}

    @pytest.mark.slow  # TestChangesOfCoordinators kills one, the test before it restarts
    def test_offsets_are_there_after_a_coordinator_is_killed_and_after_all_agents_end(
        self, clusters: ClusterFactory
    ) -> None:
        cluster = clusters()
        agents = [cluster.start(name, options=OPTIONS) for name in ("a", "b", "c")]
        create_topic(agents[0].bootstrap, TOPIC, PARTITIONS)
        where = coordinator(agents[0].bootstrap, "steady")
        CLIENTS["admin"].commit(agents[0].bootstrap, "steady", TOPIC, OFFSETS)
        dead = next(agent for agent in agents if agent.bootstrap == where)
        dead.process.kill()
        living = [agent for agent in agents if agent is not dead]
        for agent in living:
            found = CLIENTS["confluent"].committed(agent.bootstrap, "steady", TOPIC, PARTITIONS)
            assert found == without_notes(OFFSETS)
        moved = {**without_notes(OFFSETS), 0: Committed(6)}
        CLIENTS["admin"].commit(living[0].bootstrap, "steady", TOPIC, {0: Committed(6, "six")})
        assert CLIENTS["admin"].committed(living[1].bootstrap, "steady", TOPIC, PARTITIONS) == moved
        for agent in living:
            assert agent.process.stop() == 0
        alone = cluster.start("a", options=OPTIONS)
        where = coordinator(alone.bootstrap, "steady")
        assert told_by(where, "steady") == {TOPIC: {0: Committed(6, "six" + NUL), 2: Committed(7, NUL)}}

    def test_s13_a_coordinator_that_was_paused_and_replaced_commits_nothing_by_its_old_claim(
        self, clusters: ClusterFactory
    ) -> None:
        cluster = clusters()
        agents = [cluster.start(name, options=OPTIONS) for name in ("a", "b", "c")]
        create_topic(agents[0].bootstrap, TOPIC, PARTITIONS)
        where = coordinator(agents[0].bootstrap, "steady")
        CLIENTS["confluent"].commit(agents[0].bootstrap, "steady", TOPIC, {0: Committed(5)})
        paused = next(agent for agent in agents if agent.bootstrap == where)
        other = next(agent for agent in agents if agent is not paused)
        stand_still(paused.process.pid)
        try:
            wait_until(lambda: coordinator(other.bootstrap, "steady") != where, "another coordinator")
            CLIENTS["confluent"].commit(other.bootstrap, "steady", TOPIC, {0: Committed(6)})
            late = framed(ApiKey.OFFSET_COMMIT, 8, commit_request("steady", TOPIC, {0: Committed(4)}))
            with socket.create_connection(host_port(paused)) as connection:
                connection.sendall(late)
                os.kill(paused.process.pid, signal.SIGCONT)
                answer = read_answer(read_frame(connection), ApiKey.OFFSET_COMMIT, 8)
        finally:
            os.kill(paused.process.pid, signal.SIGCONT)
        # It may coordinate the group again by then, under another claim: what it says is what became of the commit.
        error_code = errors_of(answer)[0]
        assert error_code in {ErrorCode.none, *ASK_AGAIN}
        left = Committed(4) if error_code is ErrorCode.none else Committed(6, NUL)
        assert offsets_by_coordinator(other.bootstrap, "steady") == {TOPIC: {0: left}}


def host_port(agent: ClusterAgent) -> tuple[str, int]:
    host, _, port = agent.bootstrap.rpartition(":")
    return host, int(port)


def wait_for_snapshot(broker: Penstock) -> None:
    """Commit offsets of another group until a snapshot covers what is there now."""
    with urlopen(f"http://{broker.http}/api/status", timeout=30) as response:
        position = int(json.load(response)["position"])
    request = commit_request("other", TOPIC, {0: Committed(1)})

    def is_covered() -> bool:
        assert errors_of(ask(broker.bootstrap, ApiKey.OFFSET_COMMIT, 8, request)) == {0: ErrorCode.none}
        snapshots = (broker.data / "store" / SNAPSHOT_PREFIX).glob("*")
        return any((position_of_key(SNAPSHOT_PREFIX + each.name) or 0) > position for each in snapshots)

    wait_until(is_covered, "a snapshot")


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in range(first, first + count):
        producer.produce(TOPIC, struct.pack(">i", value), partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def read_on(bootstrap: str, group: str, count: int) -> list[int]:
    """The values of the next records from where the group stopped; it stops behind them then."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    stopped = max(0, consumer.committed([TopicPartition(TOPIC, 0)], SECONDS_MAX)[0].offset)
    consumer.assign([TopicPartition(TOPIC, 0, stopped)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found += struct.unpack(">i", value)
    end = stopped + count
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, end, f"at {end}")], asynchronous=False)
    consumer.close()
    return found
