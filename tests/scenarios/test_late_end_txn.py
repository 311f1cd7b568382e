"""KAFKA-17754 on Penstock: what a V1 producer sent long ago decides nothing once its client has gone on elsewhere.

A V1 request bears nothing by which it could be told from one of the next transaction: producer id and epoch are the
same. Which connection it comes on tells it (safety rule S7): a client that goes on without an answer does so on a newer
connection, and from then on the older ones are stale, on whichever agents they are. Their requests do nothing and are
not answered: the connection is closed, which is counted and logged with the client's name. V2 has the epoch, and is
told that it is fenced on any connection.

Rule: a held request is one that is sent late here, on the connection to which it belongs. The same is played with real
clients and a proxy, on a real Apache Kafka as well, by `tests/jepsen/late_end_txn.py`.
"""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from protocol.errors import ErrorCode
from tests.support.clients.kafka_requests import Broken
from tests.support.clients.transactional_client import (
    NONE,
    V2,
    Connection,
    Producer,
    Script,
    connected,
    coordinator_of,
)
from tests.support.cluster.cluster import ClusterAgent
from tests.support.cluster.faults import end_anew, metric, paused

STALE = "penstock_transactions_fenced_requests_total"
ELSEWHERE = pytest.mark.parametrize("elsewhere", [0, 1], ids=["on one agent", "on another agent"])
CLIENT = "payments-service"

pytestmark = pytest.mark.timeout(240)


def old_connection(stack: ExitStack, agent: ClusterAgent, topic: str) -> Connection:
    return stack.enter_context(connected(agent.bootstrap, topic, CLIENT))


def check_stale(agent: ClusterAgent, script: Script, late: Callable[[], object], asked: str) -> None:
    """The connection is closed instead of an answer; it is counted, and the log names the client."""
    before, log_before = metric(agent, STALE), len(agent.process.stderr)
    with pytest.raises(Broken):
        late()
    assert metric(agent, STALE) == before + 1
    logged = agent.process.stderr[log_before:]
    assert all(word in logged for word in (CLIENT, script.producer.transactional_id, asked)), logged


@ELSEWHERE
def test_kafka_17754_a_late_commit_does_not_show_what_the_next_transaction_aborts(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int
) -> None:
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic)
    script.send(old, b"first")
    # The commit is held by the network: its client gives up the connection and commits on another one.
    new = end_anew(stack, agents[elsewhere], script, is_commit=True)
    script.send(new, b"second")
    check_stale(agents[0], script, lambda: old.end(script.producer, is_commit=True), "commit")
    assert new.state_of(topic) == "Ongoing"
    script.send(new, b"second", 1)
    script.abort(new)
    for agent in agents:
        with connected(agent.bootstrap, topic) as reader:
            assert [reader.values(partition) for partition in (0, 1)] == [[b"first"], []]


@ELSEWHERE
def test_kafka_17754_a_late_abort_loses_no_write_of_the_next_transaction(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int
) -> None:
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic)
    script.send(old, b"first")
    new = end_anew(stack, agents[elsewhere], script, is_commit=False)
    script.send(new, b"second")
    check_stale(agents[0], script, lambda: old.end(script.producer, is_commit=False), "abort")
    script.send(new, b"second", 1)
    script.commit(new)
    for agent in agents:
        with connected(agent.bootstrap, topic) as reader:
            assert [reader.values(partition) for partition in (0, 1)] == [[b"second"], [b"second"]]


@ELSEWHERE
def test_kafka_17754_what_is_late_begins_no_transaction_that_nobody_would_end(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int
) -> None:
    older, old = (old_connection(stack, agents[0], topic) for _ in range(2))
    script = Script.begun(older, topic)
    script.send(older, b"first")
    new = end_anew(stack, agents[elsewhere], script, is_commit=True)
    check_stale(agents[0], script, lambda: old.add(script.producer, 1), "add 1 partitions")
    check_stale(agents[0], script, lambda: older.add_offsets(script.producer, "g"), "1 groups")
    assert new.state_of(topic) == "CompleteCommit"
    assert new.end_offset() == 2, "the record and its marker"


@ELSEWHERE
def test_kafka_17754_late_offsets_do_not_go_into_the_next_transaction(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int
) -> None:
    group = f"{topic}-group"
    coordinator = agents.index(_coordinator(agents, group))
    agent, other = agents[coordinator], agents[(coordinator + elsewhere) % len(agents)]
    old = old_connection(stack, agent, topic)
    script = Script.begun(old, topic)
    assert old.add_offsets(script.producer, group) is NONE
    # TxnOffsetCommit(0: 5) is held. Its client gives up, and goes on.
    new = end_anew(stack, other, script, is_commit=False)
    at_coordinator = new if elsewhere == 0 else stack.enter_context(connected(agent.bootstrap, topic))
    assert new.add_offsets(script.producer, group) is NONE
    assert at_coordinator.commit_offsets(script.producer, group, {0: 9}) == [NONE]
    asked = f"commit offsets of the group {group}"
    check_stale(agent, script, lambda: old.commit_offsets(script.producer, group, {0: 5}), asked)
    script.commit(new)
    assert at_coordinator.committed(group) == (NONE, 9)


def _coordinator(agents: list[ClusterAgent], group: str) -> ClusterAgent:
    with ExitStack() as stack:
        through = [stack.enter_context(connected(agent.bootstrap, "none")) for agent in agents]
        return agents[through.index(coordinator_of(group, through))]


@ELSEWHERE
@pytest.mark.parametrize("is_duplicate", [False, True], ids=["on its own connection", "as a duplicate on a newer one"])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_kafka_17754_a_late_end_of_v2_meets_the_next_epoch(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int, is_commit: bool, is_duplicate: bool
) -> None:
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic, V2)
    script.send(old, b"first")
    first = script.producer
    new = end_anew(stack, agents[elsewhere], script, is_commit=is_commit)
    script.send(new, b"second")
    late = old_connection(stack, agents[0], topic) if is_duplicate else old
    assert late.end(first, is_commit=is_commit, version=V2.end).error_code is ErrorCode.producer_fenced
    assert new.state_of(topic) == "Ongoing"
    script.end(new, is_commit=not is_commit)
    assert new.values() == ([b"first"] if is_commit else [b"second"])


@ELSEWHERE
def test_kafka_17754_a_late_produce_of_v2_slides_into_no_later_transaction(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, elsewhere: int
) -> None:
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic, V2)
    script.send(old, b"first")
    first = script.producer
    new = end_anew(stack, agents[elsewhere], script, is_commit=False)
    late = old.produce(first, 1, b"late", version=V2.produce)
    assert late == (ErrorCode.invalid_producer_epoch, -1)
    script.send(new, b"second")
    assert old.produce(first, 1, b"late", version=V2.produce) == (ErrorCode.invalid_producer_epoch, -1)
    script.commit(new)
    assert new.values() == [b"second"]


def test_kafka_17754_a_late_produce_of_v1_opens_nothing(
    agents: list[ClusterAgent], topic: str, stack: ExitStack
) -> None:
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic)
    script.send(old, b"first")
    new = end_anew(stack, agents[1], script, is_commit=False)
    assert old.produce(script.producer, 1, b"late") == (ErrorCode.invalid_txn_state, -1)
    # A client that gave a record up without knowing what became of it goes on with a new epoch (KIP-360).
    told = new.init(topic, producer=script.producer)
    assert told.error_code is NONE
    script = Script(told.producer or Producer(topic), script.versions, topic)
    script.send(new, b"second")
    assert old.produce(script.producer._replace(epoch=script.producer.epoch - 1), 1, b"late") == (
        ErrorCode.invalid_producer_epoch,
        -1,
    )
    script.commit(new)
    assert new.values() == [b"second"]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_kafka_17754_an_agent_that_stood_still_decides_nothing_when_it_goes_on(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, is_commit: bool
) -> None:
    """As Jepsen found it: the node that had the first EndTxn was paused, and another one answered the repeat."""
    old = old_connection(stack, agents[0], topic)
    script = Script.begun(old, topic)
    script.send(old, b"first")
    with paused(agents[0].process.pid):
        old.send_end(script.producer, is_commit=is_commit)
        new = end_anew(stack, agents[1], script, is_commit=is_commit)
        script.send(new, b"second")
    with pytest.raises(Broken):
        old.receive_end(script.producer)
    assert new.state_of(topic) == "Ongoing"
    script.send(new, b"second", 1)
    script.end(new, is_commit=not is_commit)
    wanted = [[b"first"], []] if is_commit else [[b"second"], [b"second"]]
    for agent in agents:
        with connected(agent.bootstrap, topic) as reader:
            assert [reader.values(partition) for partition in (0, 1)] == wanted
