"""Groups of the consumer protocol (KIP-848), as librdkafka's and Java's consumers form them, on one agent and on three.

Rule: a group's members have each partition once, read each record, and nothing twice where nobody was killed; what a
coordinator knew is known to the next one.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from tests.integration.groups.group_members import SECONDS_MAX, AnyMember, JavaMember, Member, Read, shared_out
from tests.integration.groups.group_offsets import coordinator
from tests.support.clients.kafka_requests import Entity, ask
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import wait_until
from tests.support.cluster.shared_agents import SharedBroker
from tests.support.services.java import JavaProgram

PARTITIONS = 6
group_numbers = itertools.count()
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "500",
}
SHORT_SESSION = {"group.consumer.min.session.timeout.ms": "3000", "group.consumer.session.timeout.ms": "3000"}
MEMBER_SOURCE = Path(__file__).parents[1] / "java" / "SharingMember.java"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def members() -> Iterator[Callable[[AnyMember], AnyMember]]:
    """Takes members that have to leave at the end of the test."""
    with ExitStack() as stack:

        def keep(member: AnyMember) -> AnyMember:
            stack.callback(member.leave)
            return member

        yield keep


Keep = Callable[[AnyMember], AnyMember]


@pytest.fixture
def group() -> str:
    """A group for the test alone, on agents that several tests share; its topic has the same name."""
    return f"group-{next(group_numbers)}"


class Log:
    """A topic that is written record by record; knows what its readers have to come to."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        self.written: Counter[int] = Counter()
        self._topic, self._partitions = topic, partitions
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(SECONDS_MAX)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def write(self, count: int) -> None:
        """So many records, over all partitions in turn."""
        for number in range(count):
            self._producer.produce(self._topic, b"value", partition=number % self._partitions)
            self.written[number % self._partitions] += 1
        assert self._producer.flush(SECONDS_MAX) == 0

    @property
    def records(self) -> set[Read]:
        return {(partition, offset) for partition, end in self.written.items() for offset in range(end)}


def read_by(members: Iterable[AnyMember]) -> list[Read]:
    return [read for member in members for read in member.read]


def wait_until_read(log: Log, members: Sequence[AnyMember]) -> None:
    wait_until(lambda: log.records <= set(read_by(members)), f"{len(log.records)} records read")


def described(bootstrap: str, group: str) -> Entity:
    body = {"group_ids": (group,), "include_authorized_operations": False}
    return ask(coordinator(bootstrap, group), ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body).groups[0]


def test_members_share_partitions_and_take_over_from_who_leaves(
    shared_broker: SharedBroker, members: Keep, group: str
) -> None:
    broker = shared_broker(settings=SETTINGS)
    log = Log(broker.bootstrap, group)
    log.write(600)
    one = members(Member(broker.bootstrap, group, "one"))
    wait_until_read(log, [one])
    two = members(Member(broker.bootstrap, group, "two"))
    wait_until(
        lambda: shared_out([one, two], PARTITIONS) and len(two.has) == 3, "two members with three partitions each"
    )
    log.write(600)
    wait_until_read(log, [one, two])
    shown = described(broker.bootstrap, group)
    assert (shown.group_state, shown.assignor_name, len(shown.members)) == ("Stable", "uniform", 2)
    assert {member.client_id for member in shown.members} == {"one", "two"}
    one.leave()
    wait_until(lambda: shared_out([two], PARTITIONS), "one member with everything")
    log.write(600)
    wait_until_read(log, [one, two])
    assert sorted(read_by([one, two])) == sorted(log.records)


def test_a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(
    shared_broker: SharedBroker, members: Keep, group: str
) -> None:
    broker = shared_broker(settings=SETTINGS)
    log = Log(broker.bootstrap, group)
    first = members(Member(broker.bootstrap, group, "first", instance="i1"))
    other = Member(broker.bootstrap, group, "other", instance="i2")
    members(other)
    wait_until(lambda: shared_out([first, other], PARTITIONS) and len(first.has) == 3, "both with three partitions")
    had, changes_count = first.has, other.changes_count
    epoch = described(broker.bootstrap, group).group_epoch
    first.leave()
    again = members(Member(broker.bootstrap, group, "again", instance="i1"))
    wait_until(lambda: bool(again.has), "the static member's return")
    log.write(60)
    wait_until_read(log, [first, other, again])
    assert (again.has, other.changes_count) == (had, changes_count)
    assert described(broker.bootstrap, group).group_epoch == epoch


def test_a_regular_expression_finds_topics_that_come_later(
    shared_broker: SharedBroker, members: Keep, group: str
) -> None:
    broker = shared_broker(settings=SETTINGS)
    Log(broker.bootstrap, "orders-1", 2).write(10)
    Log(broker.bootstrap, "others", 1).write(10)
    member = Member(broker.bootstrap, group, "one", topics=["^orders-[0-9]+"])
    members(member)
    wait_until(lambda: len(member.read) == 10, "what the expression matched")
    Log(broker.bootstrap, "orders-2", 3).write(9)
    wait_until(lambda: len(member.read) == 19, "a topic that came later")
    (shown,) = described(broker.bootstrap, group).members
    assert shown.subscribed_topic_regex == "(^orders-[0-9]+)"
    assert sorted(each.topic_name for each in shown.assignment.topic_partitions) == ["orders-1", "orders-2"]


def test_java_and_librdkafka_share_a_group(
    shared_broker: SharedBroker, members: Keep, group: str, compile_java: Callable[[Path], JavaProgram], tmp_path: Path
) -> None:
    broker = shared_broker(settings=SETTINGS)
    log = Log(broker.bootstrap, group)
    log.write(300)
    java = members(
        JavaMember(compile_java(MEMBER_SOURCE), broker.bootstrap, group, tmp_path / "member", protocol="consumer")
    )
    wait_until_read(log, [java])
    other = members(Member(broker.bootstrap, group, "other"))
    wait_until(lambda: shared_out([java, other], PARTITIONS) and len(other.has) == 3, "both with three partitions")
    log.write(300)
    wait_until_read(log, [java, other])
    java.leave()
    wait_until(lambda: shared_out([other], PARTITIONS), "all for who stays")
    log.write(300)
    wait_until_read(log, [java, other])
    assert sorted(read_by([java, other])) == sorted(log.records)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_classic_group_changes_its_protocol_and_back_while_it_reads(
    shared_broker: SharedBroker, members: Keep, group: str, assignor: str
) -> None:
    """KIP-848's online migration: a member of the other protocol comes, and goes again."""
    broker = shared_broker(settings=SETTINGS)
    log = Log(broker.bootstrap, group)
    log.write(300)
    classic = [members(Member(broker.bootstrap, group, name, protocol=assignor)) for name in ("one", "two")]
    wait_until(lambda: shared_out(classic, PARTITIONS) and len(classic[0].has) == 3, "a classic group")
    wait_until_read(log, classic)
    new = members(Member(broker.bootstrap, group, "new"))
    everybody = [*classic, new]
    wait_until(lambda: shared_out(everybody, PARTITIONS) and all(len(each.has) == 2 for each in everybody), "all three")
    log.write(300)
    wait_until_read(log, everybody)
    assert sorted(member.member_type for member in described(broker.bootstrap, group).members) == [0, 0, 1]
    new.leave()
    wait_until(lambda: shared_out(classic, PARTITIONS) and len(classic[0].has) == 3, "a classic group again")
    log.write(300)
    wait_until_read(log, everybody)
    assert described(broker.bootstrap, group).error_code is ErrorCode.group_id_not_found
    assert sorted(read_by(everybody)) == sorted(log.records)


@pytest.mark.slow  # the test before it changes a group's protocol, and back
def test_members_move_one_by_one_to_the_consumer_protocol(
    shared_broker: SharedBroker, members: Keep, group: str
) -> None:
    broker = shared_broker(settings=SETTINGS)
    log = Log(broker.bootstrap, group)
    log.write(300)
    old = [members(Member(broker.bootstrap, group, name, protocol="range")) for name in ("one", "two")]
    wait_until(lambda: shared_out(old, PARTITIONS) and len(old[0].has) == 3, "a classic group")
    new: list[AnyMember] = []
    for leaver in old:
        leaver.leave()
        new.append(members(Member(broker.bootstrap, group, f"new for {leaver}")))
        staying = [*old[len(new) :], *new]
        wait_until(partial(shared_out, staying, PARTITIONS), "everything with somebody")
        log.write(60)
        wait_until_read(log, [*old, *new])
    assert sorted(member.member_type for member in described(broker.bootstrap, group).members) == [1, 1]
    assert sorted(read_by([*old, *new])) == sorted(log.records)


def three_agents(clusters: ClusterFactory) -> dict[str, ClusterAgent]:
    """By address."""
    cluster = clusters()
    agents = [cluster.start(name, settings=SETTINGS | SHORT_SESSION) for name in ("a", "b", "c")]
    return {agent.bootstrap: agent for agent in agents}


@pytest.mark.slow  # classic groups do so here, both kinds in tests/simulation/test_groups.py
@pytest.mark.parametrize("how", ["drained", "killed"])
def test_a_group_outlives_its_coordinator(clusters: ClusterFactory, members: Keep, group: str, how: str) -> None:
    agents = three_agents(clusters)
    everybody = ",".join(agents)
    log = Log(everybody, group)
    log.write(300)
    both = [members(Member(everybody, group, name)) for name in ("one", "two")]
    wait_until(lambda: shared_out(both, PARTITIONS) and len(both[0].has) == 3, "both with three partitions")
    wait_until_read(log, both)
    had, epoch = [member.has for member in both], described(everybody.split(",", 1)[0], group).group_epoch
    first = agents.pop(coordinator(next(iter(agents)), group))
    if how == "drained":
        assert first.process.stop() == 0
    else:
        first.process.kill()
    rest = next(iter(agents))
    wait_until(lambda: coordinator(rest, group) in agents, "another coordinator")
    log.write(300)
    wait_until_read(log, both)
    wait_until(lambda: described(rest, group).group_state == "Stable", "a stable group")
    assert shared_out(both, PARTITIONS)
    if how == "drained":
        assert [member.has for member in both] == had
        assert described(rest, group).group_epoch == epoch
        assert sorted(read_by(both)) == sorted(log.records)
    assert described(rest, group).group_epoch >= epoch
    both[0].leave()
    wait_until(lambda: shared_out(both[1:], PARTITIONS), "all for who stays")
