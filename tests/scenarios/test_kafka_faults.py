"""The faults of Kafka's protocol and clients that Jepsen's report on Bufstream 0.1.0 tells of, on real agents.

KIP-588. A producer whose transaction took too long is told that another instance has taken its place.
KAFKA-17734. A consumer that is closed waits for answers that do not come.
KAFKA-17582. After an abort nobody knows where a consumer goes on.
KAFKA-17754. A late EndTxn decides the next transaction: `tests/scenarios/test_late_end_txn.py`.

What of these is a client's cannot be mended by a broker. It can answer in time, and keep to what was committed.
"""

import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import ErrorCode
from tests.support.clients.transactional_client import NONE, V1, V2, Script, Versions, connected, coordinator_of
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.faults import SECONDS_MAX, create_topic, paused, start, wait_state
from tests.support.services.etcd import Etcd

TOPIC = "jepsen"
GENERATIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["V1", "V2"])

pytestmark = pytest.mark.timeout(240)


# KIP-588. A transaction took too long.


def test_kip_588_a_v1_producer_whose_transaction_took_too_long_goes_on_under_its_id(
    agents: list[ClusterAgent], topic: str
) -> None:
    agent = agents[0]
    with connected(agent.bootstrap, topic) as through:
        producer = through.begun(topic, timeout=timedelta(milliseconds=300))
        script = Script(producer, V1, topic)
        script.send(through, b"too long")
        wait_state(agent, through, topic, "CompleteAbort")
        assert through.produce(producer, 1, b"later").error_code is ErrorCode.invalid_producer_epoch
        answer = through.init(topic, producer=producer)
        assert answer == (NONE, producer.next), "no other producer has replaced it, so it is not fenced"
        script = Script(producer.next, V1, topic)
        script.send(through, b"next")
        script.commit(through)
        assert through.values() == [b"next"]


def test_kip_588_a_v2_producer_aborts_and_goes_on(agents: list[ClusterAgent], topic: str) -> None:
    agent = agents[0]
    with connected(agent.bootstrap, topic) as through:
        producer = through.begun(topic, timeout=timedelta(milliseconds=300))
        script = Script(producer, V2, topic)
        script.send(through, b"too long")
        wait_state(agent, through, topic, "CompleteAbort")
        told = through.produce(producer, 1, b"later", version=V2.produce)
        assert told.error_code is ErrorCode.invalid_producer_epoch
        script.abort(through)
        assert script.producer == producer.next
        script.send(through, b"next")
        script.commit(through)
        assert through.values() == [b"next"]


# KAFKA-17734. Closing a consumer.


@pytest.mark.slow
def test_kafka_17734_a_consumer_is_closed_although_the_ledger_does_not_answer(
    own_etcd: Etcd, clusters: ClusterFactory
) -> None:
    """No answer is withheld for longer than a client waits: all requests of a member that leaves are answered."""
    agent = start(clusters(endpoints=own_etcd.endpoints), "a")
    create_topic(agent, TOPIC, 1)
    with connected(agent.bootstrap, TOPIC) as through:
        script = Script.begun(through, "x")
        script.send(through, b"v")
        script.commit(through)
    settings = {"bootstrap.servers": agent.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.error() is None
    with paused(*(member.pid for member in own_etcd.members)):
        closing = threading.Thread(target=consumer.close)  # it commits, and leaves the group
        closing.start()
        closing.join(SECONDS_MAX)
        assert not closing.is_alive(), "the consumer waits for ever"


# KAFKA-17582. Offsets after an abort.


@GENERATIONS
def test_kafka_17582_offsets_of_an_aborted_transaction_move_nobody(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    """A consumer that begins again begins where the last committed transaction ended, neither before nor behind it."""
    group = f"{topic}-group"
    with ExitStack() as stack:
        through = [stack.enter_context(connected(agent.bootstrap, topic)) for agent in agents]
        coordinator = coordinator_of(group, through)
        script = Script.begun(coordinator, topic, versions)
        for end, is_commit in ((12, True), (18, False), (15, False), (17, True), (30, False)):
            before = coordinator.committed(group)
            if versions.adds:
                assert coordinator.add_offsets(script.producer, group) is NONE
            script.send(coordinator, b"%d" % end)
            assert coordinator.commit_offsets(script.producer, group, {0: end}, versions.offsets) == [NONE]
            script.end(coordinator, is_commit=is_commit)
            assert coordinator.committed(group, is_stable=True) == ((NONE, end) if is_commit else before)
        assert coordinator.values() == [b"12", b"17"]


def test_kafka_17582_a_member_that_comes_after_an_abort_polls_what_the_transaction_had_polled(
    agents: list[ClusterAgent], topic: str
) -> None:
    group = f"{topic}-group"
    with ExitStack() as stack:
        through = coordinator_of(group, [stack.enter_context(connected(agent.bootstrap, topic)) for agent in agents])
        source = Script.begun(through, f"{topic}-source")
        for number in range(4):
            source.send(through, b"%d" % number)
        source.commit(through)
        copier = Script.begun(through, f"{topic}-copier")
        for end, is_commit in ((1, True), (3, False)):
            assert through.add_offsets(copier.producer, group) is NONE
            assert through.commit_offsets(copier.producer, group, {0: end}) == [NONE]
            copier.end(through, is_commit=is_commit)
    settings = {"bootstrap.servers": agents[0].bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0)])
    polled = [consumer.poll(SECONDS_MAX) for _ in range(3)]
    consumer.close()
    assert [message.value() for message in polled if message is not None] == [b"1", b"2", b"3"]
