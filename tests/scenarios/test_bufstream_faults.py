"""The faults that Jepsen found in Bufstream 0.1.0 (report of 2024-11-12), each by its number, on real agents.

1. Stuck consumers: a restarted agent showed an older high watermark, and clients waited indefinitely.
2. Stuck producers and consumers: an agent did not notice that its lease was gone.
3. Spurious zero offsets: an error without base offset -1 was read as success at offset 0.
4. Lost transaction writes: numbers of transactions were mixed up across epochs, and what had committed was undone.
5. Lost writes: a filter that limited the size of answers hid records from readers that lagged behind.

What the report tells of Kafka itself is in `tests/scenarios/test_kafka_faults.py` and
`tests/scenarios/test_late_end_txn.py`.

The same faults are looked for at random by `make torture` and `make jepsen`; `tests/scenarios/README.md` tells by which
other tests each is held.
"""

import json
import struct
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import get_args, get_type_hints
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.index import load_request_schema, load_response_schema
from kio.static.primitive import Records

from protocol.api_versions import API_VERSIONS
from protocol.errors import ErrorCode
from tests.support.clients.transactional_client import UNCOMMITTED, V1, V2, Script, Versions, connected
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.faults import SECONDS_MAX, create_topic, paused, start, wait_alone
from tests.support.records.kio_messages import KioEntity, kio_read, kio_write, made, to_timedelta
from tests.support.records.plain_records import Record, make_batch, read_batches
from tests.support.services.etcd import Etcd
from tests.torture.direct_reader import PRODUCE, DirectReader, Identity, direct_reader, read_value, stamped
from tests.torture.history import Read, Value

TOPIC = "jepsen"
PARTITIONS = 4
TIMEOUT_MS = 20_000
PAUSED_TIMEOUT_MS = 300
TRANSACTIONAL_BIT = 1 << 4
PRODUCE_VERSIONS = next(row for row in API_VERSIONS if row.api_key == PRODUCE)

NEWER_FIRST = pytest.mark.parametrize("versions", [pytest.param(V1, marks=pytest.mark.slow), V2], ids=["V1", "V2"])
"""Of tests that start agents of their own: by V1 in `make test-all`."""

pytestmark = pytest.mark.timeout(240)


def create_jepsen_topic(agent: ClusterAgent) -> None:
    create_topic(agent, TOPIC, PARTITIONS)


@contextmanager
def connections(*agents: ClusterAgent) -> Iterator[list[DirectReader]]:
    with ExitStack() as stack:
        yield [stack.enter_context(direct_reader(agent.bootstrap, TOPIC, PARTITIONS)) for agent in agents]


def value(counter: int, partition: int = 0) -> Value:
    return Value("p", partition, counter)


def produce(connection: DirectReader, values: list[Value]) -> dict[Value, int]:
    """Acknowledged offsets of records that are produced one after the other."""
    offsets: dict[Value, int] = {}
    for each in values:
        error_code, offset = connection.produce(each, timeout_ms=TIMEOUT_MS)
        assert error_code is ErrorCode.none
        offsets[each] = offset
    return offsets


def produce_again_until_acknowledged(connection: DirectReader, each: Value) -> int:
    """As a client does, as long as it is told to."""
    for _ in range(100):
        error_code, offset = connection.produce(each, timeout_ms=TIMEOUT_MS)
        if error_code is ErrorCode.none:
            return offset
        assert error_code.retriable
        assert offset == -1
    raise AssertionError(f"{each} is not acknowledged: {error_code}")


# 1. Stuck consumers.


def test_1_a_restarted_agent_shows_no_older_high_watermark(clusters: ClusterFactory) -> None:
    cluster = clusters()
    first, other = start(cluster, "first"), start(cluster, "other-0")
    create_jepsen_topic(first)
    values = [value(counter) for counter in range(40)]
    for round_number in range(1, 4):
        with connections(first) as (writing,):
            produce(writing, values[round_number * 10 - 10 : round_number * 10])
        other.process.kill()
        other = start(cluster, f"other-{round_number}")
        with connections(first, other) as (writing, reading):
            end = round_number * 10
            assert reading.log_end(0) == end
            ((error_code, records),) = reading.fetch({0: end - 1}).values()
            assert error_code is ErrorCode.none
            assert read_batches(records).records[-1].offset == end - 1
            ((error_code, records),) = reading.fetch({0: end}, wait_ms=1).values()
            assert (error_code, records) == (ErrorCode.none, b""), "an offset at the end is in range"
            ((error_code, _),) = reading.fetch({0: end + 1}, wait_ms=1).values()
            assert error_code is ErrorCode.offset_out_of_range
            del writing


@pytest.mark.slow  # so do tests/integration/cluster/test_reads.py
def test_1_a_consumer_that_waits_at_the_end_gets_what_another_agent_takes(clusters: ClusterFactory) -> None:
    cluster = clusters()
    first, other = start(cluster, "first"), start(cluster, "other")
    create_jepsen_topic(first)
    with connections(first) as (writing,):
        produce(writing, [value(0)])
        other.process.kill()
        other = start(cluster, "other-again")
        settings = {"bootstrap.servers": other.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        for counter in range(5):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"nothing came at offset {counter}"
            assert message.error() is None, message.error()
            assert message.offset() == counter
            produce(writing, [value(counter + 1)])
        consumer.close()


# 2. Stuck producers and consumers.


def check_serves(agent: ClusterAgent, counter: int) -> None:
    """InitProducerId, ListOffsets, Fetch and Produce work through this agent, after as many tries as a client makes."""
    with connections(agent) as (connection,):
        for _ in range(100):
            error_code, producer_id = connection.init_producer_id()
            if error_code is ErrorCode.none:
                break
            assert error_code.retriable
        assert error_code is ErrorCode.none
        assert producer_id >= 0
        offset = produce_again_until_acknowledged(connection, value(counter))
        assert connection.log_end(0) == offset + 1
        reads = list(connection.read_between(0, 0, offset + 1))
        assert reads[-1] == Read(0, offset, value(counter))


def wait_turned_away(agent: ClusterAgent) -> None:
    """Until the agent's view may be cut off: its session was not confirmed for a lease's time (safety rule S4)."""
    with connections(agent) as (connection,):
        for _ in range(100):
            ((error_code, _),) = connection.fetch({0: 0}, wait_ms=500).values()
            if error_code is not ErrorCode.none:
                assert error_code is ErrorCode.not_leader_or_follower
                return
    raise AssertionError("the agent believes its view for ever")


@pytest.mark.slow
def test_2_agents_go_on_after_the_coordinator_paused_for_longer_than_their_leases(
    own_etcd: Etcd, clusters: ClusterFactory
) -> None:
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_jepsen_topic(agents[0])
    with paused(*(member.pid for member in own_etcd.members)):
        for agent in agents:
            wait_turned_away(agent)
    for counter, agent in enumerate(agents):
        check_serves(agent, counter)


def test_2_an_agent_that_was_paused_for_longer_than_its_lease_goes_on(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agent, other = start(cluster, "a"), start(cluster, "b")
    create_jepsen_topic(agent)
    with paused(agent.process.pid):
        wait_alone(other)
        check_serves(other, 0)
    check_serves(agent, 1)
    check_serves(other, 2)


# 3. Spurious zero offsets.


def produced_in_version(connection: DirectReader, version: int, topic_id: uuid.UUID) -> KioEntity:
    """What one partition is told by Produce of this version, with a time-out that the pause outlasts."""
    schema = load_request_schema(PRODUCE, version)
    batch = make_batch([Record(offset=0, timestamp=1, value=b"p:0:0:")])
    hints = get_type_hints(schema)
    topic = get_args(hints["topic_data"])[0]
    partition = get_args(get_type_hints(topic)["partition_data"])[0]
    data = made(
        topic,
        name=TOPIC,
        topic_id=topic_id,
        partition_data=(made(partition, index=0, records=Records(batch)),),
    )
    timeout = hints["timeout"].parse(to_timedelta(PAUSED_TIMEOUT_MS))
    body = kio_write(made(schema, transactional_id=None, acks=-1, timeout=timeout, topic_data=(data,)))
    is_flexible = PRODUCE_VERSIONS.is_flexible(version)
    answer = connection.ask_bytes(PRODUCE, version, (b"\0" if is_flexible else b"") + body)
    (told,) = kio_read(load_response_schema(PRODUCE, version), answer[1:] if is_flexible else answer).responses
    return told.partition_responses[0]


def test_3_an_error_of_produce_has_offset_minus_1_in_every_version(own_etcd: Etcd, clusters: ClusterFactory) -> None:
    cluster = clusters(endpoints=own_etcd.endpoints)
    agent = start(cluster, "a")
    create_jepsen_topic(agent)
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(SECONDS_MAX).topic_id
    halves = described.get_most_significant_bits(), described.get_least_significant_bits()
    topic_id = uuid.UUID(bytes=struct.pack(">qq", *halves))
    versions = range(PRODUCE_VERSIONS.version_served_min, PRODUCE_VERSIONS.version_max + 1)
    with connections(agent) as (connection,):
        acknowledged = produce(connection, [value(0)])
        with paused(*(member.pid for member in own_etcd.members)):
            for version in versions:
                told = produced_in_version(connection, version, topic_id)
                assert ErrorCode(int(told.error_code)).retriable
                assert told.base_offset == -1
        last = produce_again_until_acknowledged(connection, value(99))
        reads = list(connection.read_between(0, 0, last + 1))
    assert acknowledged == {value(0): 0}
    assert reads[0].value == value(0)
    assert reads[-1].value == value(99)


def test_3_what_is_acknowledged_after_a_pause_stands_where_it_was_told(
    own_etcd: Etcd, clusters: ClusterFactory
) -> None:
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_jepsen_topic(agents[0])
    acknowledged: dict[Value, int] = {}
    with connections(*agents) as (first, second):
        error_code, producer_id = first.init_producer_id()
        assert error_code is ErrorCode.none
        for sequence in range(12):
            identity = Identity(producer_id, 0, sequence)
            if sequence % 4 == 1:
                with paused(*(member.pid for member in own_etcd.members)):
                    error_code, offset = first.produce(value(sequence), timeout_ms=PAUSED_TIMEOUT_MS, identity=identity)
                    assert (error_code, offset) == (ErrorCode.request_timed_out, -1)
            # The repeat of what has no answer goes to the other agent, as after a moved hint.
            error_code, offset = second.produce(value(sequence), timeout_ms=TIMEOUT_MS, identity=identity)
            assert error_code is ErrorCode.none
            acknowledged[value(sequence)] = offset
        assert acknowledged == {value(sequence): sequence for sequence in range(12)}
        for connection in (first, second):
            log = list(connection.read_between(0, 0, 12))
            assert {read.value: read.offset for read in log} == acknowledged


# 4. Lost transaction writes.


@pytest.mark.slow  # in simulated worlds; repeats over a crash in test_redpanda_faults
def test_4_a_new_epoch_takes_nothing_back_and_a_repeat_finds_its_first_copy(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b", "c")]
    create_jepsen_topic(agents[0])
    offsets: dict[Value, int] = {}
    with connections(*agents) as through:
        _, producer_id = through[0].init_producer_id()
        for epoch in range(4):
            for sequence in range(10):
                each = value(epoch * 10 + sequence)
                identity = Identity(producer_id, epoch, sequence)
                told = through[sequence % 3].produce(each, timeout_ms=TIMEOUT_MS, identity=identity)
                assert told == (ErrorCode.none, epoch * 10 + sequence)
                offsets[each] = told[1]
            for sequence in range(10):  # five were under way through each of two agents, and none was answered
                each = value(epoch * 10 + sequence)
                identity = Identity(producer_id, epoch, sequence)
                told = through[(sequence + 1) % 3].produce(each, timeout_ms=TIMEOUT_MS, identity=identity)
                assert told == (ErrorCode.none, offsets[each])
            late = through[epoch % 3].produce(value(999), timeout_ms=TIMEOUT_MS, identity=Identity(producer_id, -1, 0))
            assert late[0] is not ErrorCode.none
            assert late[1] == -1
        for connection in through:
            assert {read.value: read.offset for read in connection.read_all()} == offsets


def test_4_a_transactional_batch_of_no_transaction_is_refused_and_never_seen(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_jepsen_topic(agents[0])
    with connections(*agents) as (first, second):
        _, producer_id = first.init_producer_id()
        batch = make_batch([Record(offset=0, timestamp=1, value=b"p:0:7:")])
        batch = stamped(batch, Identity(producer_id, 0, 0), attributes=TRANSACTIONAL_BIT)
        error_code, offset = first.produce_batch(0, batch, timeout_ms=TIMEOUT_MS)
        assert error_code is not ErrorCode.none
        assert offset == -1
        produce(first, [value(0), value(1)])
        for connection in (first, second):
            assert [read.value for read in connection.read_all()] == [value(0), value(1)]


@NEWER_FIRST
def test_4_commits_and_aborts_over_several_epochs_stand_as_they_were_told(
    clusters: ClusterFactory, versions: Versions
) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b", "c")]
    create_jepsen_topic(agents[0])
    committed: list[tuple[int, bytes]] = []
    number = 0
    with ExitStack() as stack:
        for instance in range(4):  # each has a new epoch, and begins through another agent
            through = stack.enter_context(connected(agents[instance % 3].bootstrap, TOPIC))
            script = Script.begun(through, "x", versions)
            for is_commit in (True, False, False, True, True, instance % 2 == 0):
                written = [(script.send(through, b"%d" % n, 0), b"%d" % n) for n in (number, number + 1)]
                script.end(through, is_commit=is_commit)
                committed += written if is_commit else []
                number += 2
            script.send(through, b"left open", 0)  # which the next instance aborts
        readers = [stack.enter_context(connected(agent.bootstrap, TOPIC)) for agent in agents]
        for reader in readers:
            assert reader.read() == committed
        instance_after = Script.begun(readers[0], "x", versions)
        again = stack.enter_context(connected(start(cluster, "d").bootstrap, TOPIC))
        fill = [(instance_after.send(again, b"last", 0), b"last")]
        instance_after.commit(again)
        for reader in (*readers, again):
            assert reader.read() == committed + fill
            assert reader.values(isolation=UNCOMMITTED).count(b"left open") == 4


@NEWER_FIRST
def test_4_transactions_of_two_producers_end_each_by_itself(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(connected(agent.bootstrap, topic)) for agent in agents[:2])
        one, two = Script.begun(first, f"{topic}-one", versions), Script.begun(second, f"{topic}-two", versions)
        wanted: list[bytes] = []
        for number in range(6):
            one.send(first, b"one-%d" % number, 0)
            two.send(second, b"two-%d" % number, 0)
            is_one, is_two = number % 2 == 0, number % 3 == 0
            ends = [(one, first, is_one), (two, second, is_two)]
            for script, through, is_commit in ends if number < 3 else reversed(ends):
                script.end(through, is_commit=is_commit)
            wanted += [b"one-%d" % number] if is_one else []
            wanted += [b"two-%d" % number] if is_two else []
        assert first.values() == second.values() == wanted


# 5. Writes lost by filtering.


def walk(connection: DirectReader, ends: Mapping[int, int], bytes_max: int) -> list[Read]:
    """Everything, as a reader gets it that asks for all partitions at once and takes little at a time."""
    positions, reads = dict.fromkeys(ends, 0), list[Read]()
    while positions:
        for partition, (error_code, records) in connection.fetch(positions, bytes_max=bytes_max).items():
            assert error_code is ErrorCode.none
            for record in read_batches(records).records if records else ():
                if record.offset < positions[partition]:
                    continue
                assert record.offset == positions[partition], f"partition {partition} skips to {record.offset}"
                assert record.value is not None
                reads.append(Read(partition, record.offset, read_value(record.value)))
                positions[partition] = record.offset + 1
        positions = {p: offset for p, offset in sorted(positions.items(), key=lambda row: row[1]) if offset < ends[p]}
    return sorted(reads)


def archive(agent: ClusterAgent) -> None:
    body = json.dumps({"topics": [TOPIC], "wait": True}).encode()
    request = Request(f"http://{agent.http}/api/archive", data=body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS_MAX) as answer:
        assert answer.status == 200


def fill(cluster: Cluster) -> tuple[ClusterAgent, list[Read]]:
    agent = start(cluster, "writer")
    create_jepsen_topic(agent)
    with connections(agent) as (connection,):
        values = [value(counter, partition) for counter in range(25) for partition in range(PARTITIONS)]
        offsets = produce(connection, values)
    return agent, sorted(Read(each.partition, offset, each) for each, offset in offsets.items())


@pytest.mark.slow  # the one after the next fetches as little
def test_5_small_fetches_hide_nothing_from_a_reader_that_lags(clusters: ClusterFactory) -> None:
    cluster = clusters()
    writer, wanted = fill(cluster)
    ends = dict.fromkeys(range(PARTITIONS), 25)
    cold = start(cluster, "cold", {"read-cache-bytes": "1MiB"})
    for agent in (cold, writer):
        with connections(agent) as (connection,):
            for bytes_max in (1, 700, 5_000, 1 << 20):
                assert walk(connection, ends, bytes_max) == wanted


@pytest.mark.slow
def test_5_what_was_visible_once_stays_visible_archived_and_after_a_crash(clusters: ClusterFactory) -> None:
    cluster = clusters()
    writer, wanted = fill(cluster)
    ends = dict.fromkeys(range(PARTITIONS), 25)
    with connections(writer) as (connection,):
        assert walk(connection, ends, 1 << 20) == wanted
    cold = start(cluster, "cold")
    archive(cold)
    with connections(writer, cold) as through:
        for connection in through:
            assert walk(connection, ends, 700) == wanted
    writer.process.kill()
    with connections(cold, start(cluster, "writer-again")) as through:
        for connection in through:
            assert walk(connection, ends, 1) == wanted


@NEWER_FIRST
def test_5_small_fetches_hide_nothing_that_was_committed(clusters: ClusterFactory, versions: Versions) -> None:
    """Nor do aborted records between them: a reader steps over these, and over nothing else."""
    cluster = clusters()
    writer = start(cluster, "writer")
    create_jepsen_topic(writer)
    with ExitStack() as stack:
        through = stack.enter_context(connected(writer.bootstrap, TOPIC))
        script, wanted = Script.begun(through, "x", versions), list[bytes]()
        for number in range(20):
            values = [b"%d-%d" % (number, copy) for copy in range(number % 3 + 1)]
            for each in values:
                script.send(through, each)
            script.end(through, is_commit=number % 3 != 1)
            wanted += values if number % 3 != 1 else []
        cold = stack.enter_context(connected(start(cluster, "cold", {"read-cache-bytes": "1MiB"}).bootstrap, TOPIC))
        for reader in (through, cold):
            for bytes_max in (1, 150, 1 << 20):
                assert reader.values(bytes_max=bytes_max) == wanted
