"""The faults that Jepsen found in Redpanda 21.10.1 and 21.11.2 (2022), each by its number, on real agents.

1. Duplicate writes by default: a retry without idempotence, which the server had to be configured for.
3039. Duplicate writes with idempotence: a retry after a fault was out of order, and its client sent it as a new record.
3335. An assertion failed when partitions were deallocated while members changed.
3336. An assertion failed on the partition ids of an answer after a crash.
3003. Inconsistent offsets: entries were applied that were not committed.
6. Lost or stale messages: polls were empty although there were records.
7. Aborted read after NotLeaderOrFollower: an error that says "failed" for what may have happened.
8, 10, 3036, 3616. Faults of transactions: `tests/scenarios/test_redpanda_transaction_faults.py`.

`tests/scenarios/README.md` tells by which other tests each is held.
"""

import time
from contextlib import ExitStack
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from tests.compat.protocol_diff.batches import batch
from tests.support.clients.transactional_client import (
    INIT_PRODUCER_ID,
    NONE,
    PRODUCE,
    TIMEOUT,
    UNCOMMITTED,
    V2,
    Connection,
    Produced,
    Producer,
    Script,
    connected,
)
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.faults import (
    SECONDS_MAX,
    TRIES_MAX,
    create_topic,
    end_anew,
    paused,
    start,
    wait_alone,
)
from tests.support.services.etcd import Etcd

TOPIC = "jepsen"
PARTITIONS = 2
SHORT = timedelta(milliseconds=300)

pytestmark = pytest.mark.timeout(240)


def join(stack: ExitStack, agent: ClusterAgent, topic: str = TOPIC) -> Connection:
    return stack.enter_context(connected(agent.bootstrap, topic))


def idempotent(through: Connection) -> Producer:
    """A producer without a transactional id."""
    body = {"transactional_id": None, "transaction_timeout": TIMEOUT, "producer_id": -1, "producer_epoch": -1}
    told = through.ask(INIT_PRODUCER_ID, 4, body)
    assert told.error_code is NONE
    return Producer("", told.producer_id, told.producer_epoch)


def write(
    through: Connection, producer: Producer, sequence: int, value: bytes, timeout: timedelta = TIMEOUT
) -> Produced:
    """One record of an idempotent producer, to partition 0."""
    records = batch([value], pid=producer.producer_id, epoch=producer.epoch, seq=sequence)
    rows = [{"name": through.topic, "partition_data": [{"index": 0, "records": records}]}]
    body = {"transactional_id": None, "acks": -1, "timeout": timeout, "topic_data": rows}
    through.send(PRODUCE, 9, body)
    return through.receive_produced()


def write_until_known(through: Connection, producer: Producer, sequence: int, value: bytes) -> int:
    """As a client does: again as long as it is told to."""
    for _ in range(TRIES_MAX):
        told = write(through, producer, sequence, value)
        if told.error_code is NONE:
            return told.offset
        assert told.error_code.retriable, told
        assert told.offset == -1
    raise AssertionError(f"{value!r} is not acknowledged")


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fill(through: Connection, script: Script, values: list[bytes], *, is_commit: bool = True) -> None:
    """One transaction with these values in both partitions."""
    for value in values:
        for partition in range(PARTITIONS):
            script.send(through, value, partition)
    script.end(through, is_commit=is_commit)


# 1. Duplicate writes by default.


def test_1_a_repeat_is_one_record_without_any_setting(clusters: ClusterFactory, stack: ExitStack) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    producer = idempotent(first)
    told = [write(through, producer, 0, b"only") for through in (first, second, first)]
    assert told == [(NONE, 0)] * 3
    assert second.values() == [b"only"]


def test_1_idempotence_and_transactions_outlive_the_first_agent(clusters: ClusterFactory, stack: ExitStack) -> None:
    """Redpanda's id allocator and coordinator had one replica, unless they were configured."""
    cluster = clusters()
    first, second = (start(cluster, name) for name in ("a", "b"))
    create_topic(first, TOPIC, PARTITIONS)
    before = join(stack, first)
    script, plain = Script.begun(before, "x"), idempotent(before)
    fill(before, script, [b"before"])
    assert write(before, plain, 0, b"plain").error_code is NONE
    first.process.kill()
    after = join(stack, second)
    assert idempotent(after).producer_id not in {plain.producer_id, script.producer.producer_id}
    offset = write_until_known(after, plain, 0, b"plain")
    fill(after, script, [b"after"])
    assert after.values() == [b"before", b"plain", b"after"]
    assert after.read()[1] == (offset, b"plain")


# 3039. Duplicate writes with idempotence.


def test_3039_what_is_repeated_after_a_crash_is_neither_out_of_order_nor_there_twice(
    clusters: ClusterFactory, stack: ExitStack
) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    producer = idempotent(first)
    values = values_of(5)
    for sequence, value in enumerate(values):  # as many as a client has under way, and no answer is read
        records = batch([value], pid=producer.producer_id, epoch=producer.epoch, seq=sequence)
        rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
        first.send(PRODUCE, 9, {"transactional_id": None, "acks": -1, "timeout": TIMEOUT, "topic_data": rows})
    agents[0].process.wait_until(lambda: second.end_offset() >= 1, "the first of them")
    agents[0].process.kill()
    for _ in range(2):
        offsets = [write_until_known(second, producer, sequence, value) for sequence, value in enumerate(values)]
        assert offsets == list(range(5))
    assert second.values() == values


@pytest.mark.slow  # test_bufstream_faults repeats over a pause of etcd, too
def test_3039_so_is_what_is_repeated_while_the_ledger_stood_still(
    own_etcd: Etcd, clusters: ClusterFactory, stack: ExitStack
) -> None:
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    producer = idempotent(first)
    values = values_of(5)
    with paused(*(member.pid for member in own_etcd.members)):
        for sequence, value in enumerate(values):
            told = write(first, producer, sequence, value, SHORT)
            assert told.error_code.retriable, told
    for through in (second, first):
        offsets = [write_until_known(through, producer, sequence, value) for sequence, value in enumerate(values)]
        assert offsets == list(range(5))
    assert first.values() == second.values() == values


# 3335. An assertion failed when partitions were deallocated.


@pytest.mark.slow  # librdkafka's administrator may wait for a controller that was killed, for a minute
def test_3335_topics_come_and_go_while_agents_do_and_nobody_fails(clusters: ClusterFactory, stack: ExitStack) -> None:
    cluster = clusters()
    kept = start(cluster, "kept")
    create_topic(kept, TOPIC, PARTITIONS)
    through_kept = join(stack, kept)
    script = Script.begun(through_kept, "x")
    admin = AdminClient({"bootstrap.servers": kept.bootstrap})
    for number in range(2):
        passing = start(cluster, f"passing-{number}")
        names = [f"deleted-{number}-{copy}" for copy in range(3)]
        for name in names:
            create_topic(passing, name, 8)
        with connected(passing.bootstrap, names[0]) as through:
            doomed = Script.begun(through, f"doomed-{number}")
            doomed.send(through, b"gone", 7)  # the transaction is open when its partition is deleted
            futures = admin.delete_topics(names)
            if number % 2:
                passing.process.kill()
            else:
                assert passing.process.stop() == 0
        for future in futures.values():
            future.result(SECONDS_MAX)
        with connected(kept.bootstrap, TOPIC) as through:
            end_anew(stack, kept, doomed, is_commit=True)
            assert through.state_of(f"doomed-{number}") == "CompleteCommit"
        fill(through_kept, script, values_of(2))
    assert kept.process.is_running
    assert set(admin.list_topics(timeout=SECONDS_MAX).topics) == {TOPIC}


# 3336. An assertion failed on the partition ids of an answer.


@pytest.mark.slow
def test_3336_every_partition_of_an_answer_is_one_that_was_asked_for_through_an_agent_that_crashed(
    clusters: ClusterFactory, stack: ExitStack
) -> None:
    cluster = clusters()
    agent, other = start(cluster, "a"), start(cluster, "b")
    create_topic(agent, TOPIC, 6)
    asked = [5, 0, 17, 3, 1, -1, 4]
    for number in range(2):
        through = join(stack, agent)
        # Each partition takes another number of records, so that its offset is no other's.
        rows = [{"index": index, "records": batch([b"%d" % number] * (abs(index) + 1))} for index in asked]
        body = {"transactional_id": None, "acks": -1, "timeout": TIMEOUT}
        told = through.ask(PRODUCE, 9, {**body, "topic_data": [{"name": TOPIC, "partition_data": rows}]})
        answered = told.responses[0].partition_responses
        assert sorted(row.index for row in answered) == sorted(asked)
        for row in answered:
            is_there = 0 <= row.index < 6
            wanted = (NONE, number * (row.index + 1)) if is_there else (ErrorCode.unknown_topic_or_partition, -1)
            assert (row.error_code, row.base_offset) == wanted, row
        agent.process.kill()
        agent = start(cluster, f"a-{number}")
    assert other.process.is_running


# 3003. Inconsistent offsets.


def test_3003_nothing_is_shown_before_the_ledger_has_it_and_then_all_agents_show_it_at_one_offset(
    own_etcd: Etcd, clusters: ClusterFactory, stack: ExitStack
) -> None:
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    producers = [idempotent(through) for through in (first, second)]
    assert write(first, producers[0], 0, b"known") == (NONE, 0)
    assert second.values() == [b"known"]
    with paused(*(member.pid for member in own_etcd.members)):
        for through, producer, value in zip((first, second), producers, (b"a", b"b"), strict=True):
            sequence = 1 if producer is producers[0] else 0
            assert write(through, producer, sequence, value, SHORT).error_code.retriable
            told = through.fetch(1, isolation=UNCOMMITTED)
            assert not told.records, "a record that nobody may rely on"
    offsets = {
        b"known": 0,
        b"a": write_until_known(second, producers[0], 1, b"a"),
        b"b": write_until_known(first, producers[1], 0, b"b"),
    }
    for through in (first, second):
        assert {value: offset for offset, value in through.read()} == offsets
        assert sorted(offsets.values()) == [0, 1, 2]


# 6. Lost or stale messages.


@pytest.mark.slow  # test_bufstream_faults pauses an agent for longer than its lease, too
def test_6_an_agent_that_stood_still_shows_all_that_others_took_meanwhile(
    clusters: ClusterFactory, stack: ExitStack
) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    stale, other = (join(stack, agent) for agent in agents)
    script = Script.begun(other, "x")
    fill(other, script, [b"before"])
    assert stale.values() == [b"before"]
    with paused(agents[0].process.pid):
        wait_alone(agents[1])  # for longer than its lease
        fill(other, script, [b"meanwhile"])
    # A consumer at its end gets the record, or an error, and never nothing for long.
    until = time.monotonic() + SECONDS_MAX
    while not (told := stale.fetch(2, wait=timedelta(seconds=1))).records:
        assert told.error_code is ErrorCode.not_leader_or_follower, "a poll is empty although there is a record"
        assert time.monotonic() < until, "the agent does not come back"
    assert stale.values() == [b"before", b"meanwhile"]


# 7. Aborted read after NotLeaderOrFollower.


def test_7_what_was_answered_with_an_error_to_ask_again_after_is_there_once_or_not_at_all(
    own_etcd: Etcd, clusters: ClusterFactory, stack: ExitStack
) -> None:
    """The error is retriable, so clients do not take it for a failure; and the repeat finds what had happened."""
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    script = Script.begun(first, "x", V2)
    script.send(first, b"0")
    with paused(*(member.pid for member in own_etcd.members)):
        told = first.produce(script.producer, 1, b"1", version=V2.produce, timeout=SHORT)
        assert told.error_code.retriable, told
        assert told.offset == -1
    # Whoever gives up aborts: nothing of it is seen, whether the second record was written or not.
    script.abort(second)
    assert first.produce(script.producer._replace(epoch=0), 1, b"1", version=V2.produce) == (
        ErrorCode.invalid_producer_epoch,
        -1,
    )
    fill(second, script, [b"next"])
    assert first.values() == second.values() == [b"next"]
    assert [value for value in first.values(isolation=UNCOMMITTED) if value == b"1"] in ([], [b"1"])
