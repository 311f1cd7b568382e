"""The faults of transactions that Jepsen found in Redpanda 21.10.1 (2022), each by its number, on real agents.

8. Write cycles (G0): records of two transactions interleave.
3036. Aborted reads and circular information flow (G1a, G1c): the last stable offset was one too far.
10. Polls that go back within a transaction, after a rebalance.
3616-a. Aborted read with INVALID_TXN_STATE: the repeat of a commit that had succeeded was told that it had failed.
3616-b. Lost transactional writes: what was committed was gone after the leader had changed.

And what Redpanda's own tests do in this field: another producer takes the transactional ids over (`hijack_tx_ids`). The
other faults are in `tests/scenarios/test_redpanda_faults.py`.
"""

import socket
from contextlib import ExitStack
from datetime import timedelta

import pytest

from protocol.errors import ErrorCode
from tests.support.clients.transactional_client import (
    COMMITTED,
    NONE,
    UNCOMMITTED,
    V1,
    V2,
    Connection,
    Script,
    Versions,
    connected,
    connections,
    coordinator_of,
)
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.faults import (
    create_topic,
    end_anew,
    paused,
    start,
    wait_agents,
    wait_alone,
    wait_state,
)
from tests.support.services.etcd import Etcd

TOPIC = "jepsen"
PARTITIONS = 2
GENERATIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["V1", "V2"])
NEWER_FIRST = pytest.mark.parametrize("versions", [pytest.param(V1, marks=pytest.mark.slow), V2], ids=["V1", "V2"])
"""Of tests that start agents of their own: by V1 in `make test-all`."""

pytestmark = pytest.mark.timeout(240)


def join(stack: ExitStack, agent: ClusterAgent, topic: str = TOPIC) -> Connection:
    return stack.enter_context(connected(agent.bootstrap, topic))


def fill(through: Connection, script: Script, values: list[bytes], *, is_commit: bool = True) -> None:
    """One transaction with these values in both partitions."""
    for value in values:
        for partition in range(PARTITIONS):
            script.send(through, value, partition)
    script.end(through, is_commit=is_commit)


# 8. Write cycles.


def interleaved(through: Connection, versions: Versions) -> None:
    """T1 writes a, T2 writes c and commits, T1 writes b and commits: to both partitions."""
    one, two = (Script.begun(through, f"{through.topic}-{name}", versions) for name in ("one", "two"))
    for script, values, is_ended in ((one, [b"a"], False), (two, [b"c"], True), (one, [b"b"], True)):
        for value in values:
            for partition in range(PARTITIONS):
                script.send(through, value, partition)
        if is_ended:
            script.commit(through)


@GENERATIONS
def test_8_with_placement_at_commit_no_transaction_stands_in_the_middle_of_another(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    placed = f"{topic}-placed"
    create_topic(agents[0], placed, PARTITIONS, **{"penstock.transaction.placement": "commit"})
    with connections(placed, [agent.bootstrap for agent in agents]) as through:
        interleaved(through[0], versions)
        for reader in through:
            for partition in range(PARTITIONS):
                assert reader.values(partition) == [b"c", b"a", b"b"], "X2 is committed first, and stands before X1"


@GENERATIONS
def test_8_without_it_they_stand_as_they_were_written_as_in_kafka(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        interleaved(through[0], versions)
        for reader in through:
            assert [reader.values(partition) for partition in range(PARTITIONS)] == [[b"a", b"c", b"b"]] * 2


# 3036. Aborted reads and circular information flow.


@GENERATIONS
def test_3036_the_last_stable_offset_is_that_of_the_first_open_record_and_no_further(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        done, early, late = (
            Script.begun(through[0], f"{topic}-{name}", versions) for name in ("done", "early", "late")
        )
        fill(through[0], done, [b"done"])  # offset 0, its marker at 1
        early.send(through[0], b"early")  # 2
        late.send(through[0], b"late")  # 3

        def check(stable: int, values: list[bytes]) -> None:
            for reader in through:
                assert reader.end_offset(isolation=COMMITTED) == stable
                assert reader.values() == values
                told = reader.fetch(stable)
                assert (told.last_stable_offset, told.records or b"") == (stable, b"")

        check(2, [b"done"])
        late.commit(through[0])  # its marker at 4
        check(2, [b"done"])
        early.abort(through[0])  # 5
        check(6, [b"done", b"late"])


@GENERATIONS
def test_3036_two_transactions_do_not_read_each_other(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    """G1c: T1 reads what T2 wrote, and T2 what T1 wrote. And G1a, when they abort."""
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        one, two = (Script.begun(through[0], f"{topic}-{name}", versions) for name in ("one", "two"))
        one.send(through[0], b"one", 0)
        two.send(through[0], b"two", 1)
        assert [[reader.values(partition) for partition in (0, 1)] for reader in through] == [[[], []]] * 3
        one.abort(through[0])
        assert [reader.values(0) for reader in through] == [[]] * 3
        two.commit(through[0])
        assert [[reader.values(partition) for partition in (0, 1)] for reader in through] == [[[], [b"two"]]] * 3
        assert through[1].values(0, UNCOMMITTED) == [b"one"], "who reads what is not committed may see it"


# 10. Polls that go back within a transaction.


@GENERATIONS
def test_10_who_gets_a_partition_waits_for_the_offsets_of_the_open_transaction(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    """A member that begins where the group stood before would poll again what the open transaction has consumed."""
    group = f"{topic}-group"
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        coordinator = coordinator_of(group, through)
        script = Script.begun(coordinator, topic, versions)
        for end, is_commit in ((3, True), (7, False), (5, True)):
            before = coordinator.committed(group)
            if versions.adds:
                assert coordinator.add_offsets(script.producer, group) is NONE
            told = coordinator.commit_offsets(script.producer, group, {0: end}, versions.offsets)
            assert told == [NONE]
            assert coordinator.committed(group, is_stable=True) == (ErrorCode.unstable_offset_commit, -1)
            assert coordinator.committed(group) == before
            script.end(coordinator, is_commit=is_commit)
            assert coordinator.committed(group, is_stable=True) == ((NONE, end) if is_commit else before)


# 3616-a. Aborted read with INVALID_TXN_STATE.


def asked_anew(stack: ExitStack, agent: ClusterAgent, script: Script) -> Connection:
    """A new connection that commits again. One of V1 that is as old as the commit is closed: a newer one asks (S7)."""
    if not script.versions.adds:
        return join(stack, agent, script.topic)
    return end_anew(stack, agent, Script(script.producer, script.versions, script.topic), is_commit=True)


def check_commit_is_known(agents: list[Connection], again: Connection, script: Script) -> None:
    """The repeat of a commit is told that it succeeded, however often; all agents show its records."""
    for _ in range(3):
        told = again.end(script.producer, version=script.versions.end)
        assert told.error_code is NONE
        assert told.producer in {None, script.producer.next}
    for reader in agents:
        assert [reader.values(partition) for partition in range(PARTITIONS)] == [[b"v"]] * PARTITIONS


@NEWER_FIRST
def test_3616a_a_commit_whose_answer_was_lost_is_told_to_have_succeeded(
    agents: list[ClusterAgent], topic: str, stack: ExitStack, versions: Versions
) -> None:
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        lost = join(stack, agents[0], topic)
        script = Script.begun(lost, topic, versions)
        for partition in range(PARTITIONS):
            script.send(lost, b"v", partition)
        lost.send_end(script.producer, version=versions.end)
        wait_state(agents[0], through[0], topic, "CompleteCommit")
        lost._connection.shutdown(socket.SHUT_RDWR)  # before the answer is read
        check_commit_is_known(through, asked_anew(stack, agents[1], script), script)


@pytest.mark.slow  # 3616b below: a transaction outlives its agent
@GENERATIONS
def test_3616a_so_is_one_whose_agent_died(clusters: ClusterFactory, stack: ExitStack, versions: Versions) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    script = Script.begun(first, "x", versions)
    for partition in range(PARTITIONS):
        script.send(first, b"v", partition)
    first.send_end(script.producer, version=versions.end)
    wait_state(agents[1], second, "x", "CompleteCommit")
    agents[0].process.kill()
    readers = [second, join(stack, start(cluster, "a-again"))]
    check_commit_is_known(readers, asked_anew(stack, agents[1], script), script)


@pytest.mark.slow  # in simulated worlds the ledger is late, too
@GENERATIONS
def test_3616a_so_is_one_that_a_ledger_that_stood_still_took(
    own_etcd: Etcd, clusters: ClusterFactory, stack: ExitStack, versions: Versions
) -> None:
    """Nobody says that a commit failed while nobody knows; who asks again is told what became of it."""
    cluster = clusters(endpoints=own_etcd.endpoints)
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first, second = (join(stack, agent) for agent in agents)
    script = Script.begun(first, "x", versions)
    for partition in range(PARTITIONS):
        script.send(first, b"v", partition)
    with paused(*(member.pid for member in own_etcd.members)):
        first.send_end(script.producer, version=versions.end)
        second.fetch(0, wait=timedelta(seconds=1))  # time in which nothing is said
    told = first.receive_end(script.producer, versions.end)
    assert told.error_code is NONE or told.error_code.retriable, told
    check_commit_is_known([first, second], asked_anew(stack, agents[1], script), script)


@GENERATIONS
def test_3616a_who_is_told_that_a_commit_failed_is_told_the_truth(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    """The transaction took too long: its commit is refused, and nobody ever reads its records."""
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        producer = through[0].begun(topic, timeout=timedelta(milliseconds=300))
        script = Script(producer, versions, topic)
        script.send(through[0], b"v")
        wait_state(agents[0], through[0], topic, "CompleteAbort")
        told = through[0].end(producer, version=versions.end)
        assert told.error_code is ErrorCode.producer_fenced
        assert [reader.values() for reader in through] == [[]] * 3


# 3616-b. Lost transactional writes.


@pytest.mark.slow  # one agent dies in the next test
@GENERATIONS
def test_3616b_what_was_committed_stays_whichever_agents_die(
    clusters: ClusterFactory, stack: ExitStack, versions: Versions
) -> None:
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    script, wanted = Script.begun(join(stack, agents[0]), "x", versions), list[bytes]()
    for number in range(3):
        through = join(stack, agents[0])
        fill(through, script, [b"%d" % number], is_commit=number != 1)
        wanted += [b"%d" % number] if number != 1 else []
        agents[0].process.kill()
        agents = [agents[1], start(cluster, f"next-{number}")]
        for agent in agents:
            check_has(join(stack, agent), wanted)
    wait_agents(agents[1], len(agents))
    for agent in agents:
        check_has(join(stack, agent), wanted)


def check_has(reader: Connection, values: list[bytes]) -> None:
    """These are committed in every partition, and nothing else."""
    assert [reader.values(partition) for partition in range(PARTITIONS)] == [values] * PARTITIONS


@NEWER_FIRST
def test_3616b_a_transaction_goes_on_where_the_agent_that_had_it_died(
    clusters: ClusterFactory, stack: ExitStack, versions: Versions
) -> None:
    """No agent is its leader: what was begun through one is gone on with through another, in the same epoch, before the
    first one's session has ended and after."""
    cluster = clusters()
    agents = [start(cluster, name) for name in ("a", "b")]
    create_topic(agents[0], TOPIC, PARTITIONS)
    first = join(stack, agents[0])
    script = Script.begun(first, "x", versions)
    script.send(first, b"first", 0)
    agents[0].process.kill()
    second = join(stack, agents[1])
    script.send(second, b"second", 0)
    wait_alone(agents[1])
    script.send(second, b"third", 0)
    script.send(second, b"third", 1)
    script.commit(second)
    assert [second.values(partition) for partition in (0, 1)] == [[b"first", b"second", b"third"], [b"third"]]


# Transactional ids that somebody else takes over.


@GENERATIONS
def test_hijacked_transactional_ids_belong_to_the_last_who_asked(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        first = Script.begun(through[0], topic, versions)
        first.send(through[0], b"first")
        second = Script.begun(through[1], topic, versions)
        assert second.producer.producer_id == first.producer.producer_id
        assert second.producer.epoch > first.producer.epoch
        assert through[2].values() == [], "what the first one had open is aborted"
        told = through[0].produce(first.producer, 1, b"zombie", version=versions.produce)
        assert told == (ErrorCode.invalid_producer_epoch, -1)
        for is_commit in (True, False):
            told_end = through[0].end(first.producer, is_commit=is_commit, version=versions.end)
            assert told_end.error_code is ErrorCode.producer_fenced
        fill(through[1], second, [b"second"])
        assert [reader.values() for reader in through] == [[b"second"]] * 3


def test_hijacked_transactional_ids_do_not_go_back(agents: list[ClusterAgent], topic: str) -> None:
    """Whoever lost it cannot take part again with what it had."""
    with connections(topic, [agent.bootstrap for agent in agents]) as through:
        first = through[0].begun(topic)
        second = Script.begun(through[1], topic)
        second.send(through[1], b"second")
        assert through[0].init(topic, producer=first).error_code is ErrorCode.producer_fenced
        assert through[0].add(first, 1) is ErrorCode.producer_fenced
        second.commit(through[1])
        assert through[2].values() == [b"second"]
