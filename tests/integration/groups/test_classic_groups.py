"""Consumer groups of real clients: partitions are shared, handed over and read once, on one agent and on three, also
while their coordinator dies, drains or stands still.

Rule: members answer in time, so a change of coordinators costs no rebalance: nobody's assignment changes.
"""

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import LEDGER_SESSION_SECONDS
from tests.support.client_libraries.group_members import MEMBERS, ConfluentMember, JavaMember, Member, wait_until
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.shared_agents import SharedBroker, SharedCluster
from tests.support.processes import stand_still
from tests.support.services.java import JavaProgram

PARTITIONS = 4
RECORDS = 400
SETTINGS = {"group.initial.rebalance.delay.ms": "500"}
NAMES = ("a", "b", "c")
_numbers = itertools.count()

pytestmark = pytest.mark.timeout(300)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A topic with records, and a group of its own, on agents."""

    bootstrap: str
    group: str
    topic: str

    def produce(self, count: int = RECORDS) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            producer.produce(self.topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def described(self) -> tuple[str, str, set[str]]:
        """The group's state, the address of its coordinator, and the ids of its members."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (future,) = admin.describe_consumer_groups([self.group]).values()
        told = future.result(30)
        address = f"{told.coordinator.host}:{told.coordinator.port}"
        return told.state.name, address, {member.member_id for member in told.members}


def scene(bootstrap: str) -> Scene:
    number = next(_numbers)
    made = Scene(bootstrap=bootstrap, group=f"group-{number}", topic=f"topic-{number}")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(made.topic, PARTITIONS)]).values()
    created.result(30)
    made.produce()
    return made


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 3], ids=["one agent", "three agents"])
def bootstrap(request: pytest.FixtureRequest, shared_broker: SharedBroker) -> str:
    if request.param == 1:
        return shared_broker(settings=SETTINGS).bootstrap
    shared_cluster: SharedCluster = request.getfixturevalue("shared_cluster")
    return ",".join(agent.bootstrap for agent in shared_cluster(settings=SETTINGS))


def settled(members: Sequence[Member]) -> bool:
    """Whether the partitions are shared among all of them."""
    shares = [member.partitions for member in members]
    return all(shares) and sorted(itertools.chain(*shares)) == list(range(PARTITIONS))


def all_read(members: Sequence[Member], count: int) -> bool:
    return len({place for member in members for place in member.read}) == count


@pytest.fixture(scope="module")
def java_member(compile_java: Callable[[Path], JavaProgram]) -> JavaProgram:
    return compile_java(Path(__file__).parents[1] / "java" / "GroupMember.java")


@pytest.mark.parametrize(
    "library",
    [
        name if name in ("confluent-cooperative", "kafka-python") else pytest.param(name, marks=pytest.mark.slow)
        for name in MEMBERS  # members of all of them make one group below
    ],
)
def test_members_share_the_partitions_and_hand_them_over(bootstrap: str, library: str) -> None:
    here = scene(bootstrap)
    check_shared_and_handed_over(here, [MEMBERS[library](bootstrap, here.group, here.topic) for _ in range(2)])


@pytest.mark.parametrize(
    "assignor", [pytest.param("RangeAssignor", marks=pytest.mark.slow), "CooperativeStickyAssignor"]
)
def test_java_members_share_the_partitions_and_hand_them_over(
    bootstrap: str, java_member: JavaProgram, tmp_path: Path, assignor: str
) -> None:
    here = scene(bootstrap)
    config = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
    check_shared_and_handed_over(
        here,
        [JavaMember(bootstrap, here.group, here.topic, config, program=java_member, folder=tmp_path) for _ in range(2)],
    )


def check_shared_and_handed_over(here: Scene, members: Sequence[Member]) -> None:
    with ExitStack() as stack:
        one, other = [stack.enter_context(member) for member in members]
        wait_until(lambda: settled([one, other]), "two shares")
        wait_until(lambda: all_read([one, other], RECORDS), "every record")
        assert here.described()[0] == "STABLE"
        one.stop()
        wait_until(lambda: other.partitions == frozenset(range(PARTITIONS)), "the whole topic for who stayed")
        here.produce()
        wait_until(lambda: all_read([one, other], 2 * RECORDS), "every record")
    for member in (one, other):
        assert len(member.read) == len(set(member.read)), "a member read a record twice that it had committed"
    assert here.described()[0] == "EMPTY"


def test_tools_see_groups_by_state_and_type(bootstrap: str) -> None:
    here = scene(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def listed(**filters: set[ConsumerGroupState] | set[ConsumerGroupType]) -> set[tuple[str, str]]:
        """The listed ones of this test's groups, with their states."""
        listing = admin.list_consumer_groups(**filters).result(30)
        assert not listing.errors
        return {(group.group_id, group.state.name) for group in listing.valid if group.group_id == here.group}

    with MEMBERS["confluent"](bootstrap, here.group, here.topic) as member:
        wait_until(lambda: settled([member]), "the whole topic")
        wait_until(lambda: listed(states={ConsumerGroupState.STABLE}) == {(here.group, "STABLE")}, "a stable group")
        assert listed(types={ConsumerGroupType.CLASSIC}) == {(here.group, "STABLE")}
        assert listed(states={ConsumerGroupState.EMPTY}) == listed(types={ConsumerGroupType.CONSUMER}) == set()
    assert listed(states={ConsumerGroupState.EMPTY}) == {(here.group, "EMPTY")}


def test_members_of_several_libraries_make_one_group(bootstrap: str) -> None:
    here = scene(bootstrap)
    with ExitStack() as stack:
        libraries = ("confluent", "kafka-python", "aiokafka")
        members = [stack.enter_context(MEMBERS[name](bootstrap, here.group, here.topic)) for name in libraries]
        wait_until(lambda: settled(members), "three shares")
        wait_until(lambda: all_read(members, RECORDS), "every record")


def test_a_static_member_that_comes_back_costs_the_others_nothing(bootstrap: str) -> None:
    here = scene(bootstrap)

    def member(name: str) -> ConfluentMember:
        return ConfluentMember(bootstrap, here.group, here.topic, group_instance_id=name)

    with member("one") as one:
        with member("two") as two:
            wait_until(lambda: settled([one, two]), "two shares")
            share, assignments_count = two.partitions, one.assignments_count
        with member("two") as again:
            wait_until(lambda: bool(again.partitions), "its share again")
            assert again.partitions == share
            assert (one.assignments_count, settled([one, again])) == (assignments_count, True)


def test_a_cooperative_member_keeps_what_it_has_while_another_comes(bootstrap: str) -> None:
    """KIP-429."""
    here = scene(bootstrap)
    with MEMBERS["confluent-cooperative"](bootstrap, here.group, here.topic) as one:
        wait_until(lambda: one.partitions == frozenset(range(PARTITIONS)), "the whole topic")
        with MEMBERS["confluent-cooperative"](bootstrap, here.group, here.topic) as other:
            wait_until(lambda: settled([one, other]), "two shares")
            assert len(one.losses) == PARTITIONS // 2, "what stays was taken away as well"


class TestChangesOfCoordinators:
    """Architecture: consumer groups. A coordinator's end moves the group without a rebalance (S13)."""

    @pytest.fixture
    def cluster(self, clusters: ClusterFactory) -> Cluster:
        cluster = clusters()
        for name in NAMES:
            cluster.start(name, settings=SETTINGS)
        return cluster

    @pytest.fixture
    def here(self, cluster: Cluster) -> Scene:
        return scene(",".join(agent.bootstrap for agent in cluster.agents.values()))

    @pytest.fixture
    def members(self, here: Scene) -> Iterator[list[Member]]:
        with ExitStack() as stack:
            members = [
                stack.enter_context(MEMBERS[name](here.bootstrap, here.group, here.topic))
                # Not kafka-python: it leaves sockets open whose agent died, upon which a test run fails.
                for name in ("confluent", "aiokafka", "confluent")
            ]
            wait_until(lambda: settled(members) and all_read(members, RECORDS), "three shares, and every record")
            yield members

    def test_one_that_is_killed(self, cluster: Cluster, here: Scene, members: list[Member]) -> None:
        before = self._coordinator(cluster, here)
        shares = self._shares(members)
        before.process.kill()
        wait_until(lambda: self._address(here) not in (before.bootstrap, ""), "another coordinator")
        self._check_goes_on(here, members, shares)

    @pytest.mark.slow  # in simulated worlds: tests/simulation/test_groups.py
    def test_one_that_drains(self, cluster: Cluster, here: Scene, members: list[Member]) -> None:
        before = self._coordinator(cluster, here)
        shares = self._shares(members)
        assert before.process.stop() == 0, before.process.stderr
        self._check_goes_on(here, members, shares)
        assert self._address(here) != before.bootstrap

    @pytest.mark.slow
    def test_one_that_stands_still_for_longer_than_its_lease(
        self, cluster: Cluster, here: Scene, members: list[Member]
    ) -> None:
        before = self._coordinator(cluster, here)
        shares = self._shares(members)
        stand_still(before.process.pid)
        try:
            wait_until(
                lambda: self._address(here) not in (before.bootstrap, ""),
                "another coordinator",
                seconds_max=6 * LEDGER_SESSION_SECONDS,
            )
        finally:
            os.kill(before.process.pid, signal.SIGCONT)
        self._check_goes_on(here, members, shares)

    @pytest.mark.slow
    def test_one_after_the_other_in_a_rolling_restart(
        self, cluster: Cluster, here: Scene, members: list[Member]
    ) -> None:
        shares = self._shares(members)
        for agent in tuple(cluster.agents.values()):
            assert agent.process.stop() == 0, agent.process.stderr
            cluster.start(agent.name, listen=agent.bootstrap, settings=SETTINGS)
        self._check_goes_on(here, members, shares)

    def _shares(self, members: Sequence[Member]) -> list[tuple[frozenset[int], int]]:
        return [(member.partitions, member.assignments_count) for member in members]

    def _check_goes_on(
        self, here: Scene, members: Sequence[Member], shares: Sequence[tuple[frozenset[int], int]]
    ) -> None:
        here.produce()
        wait_until(lambda: all_read(members, 2 * RECORDS), "every record")
        assert self._shares(members) == shares, "a rebalance"
        state, _, known = here.described()
        assert (state, len(known)) == ("STABLE", len(members))

    def _address(self, here: Scene) -> str:
        try:
            return here.described()[1]
        except KafkaException:  # nobody coordinates it just now
            return ""

    def _coordinator(self, cluster: Cluster, here: Scene) -> ClusterAgent:
        address = self._address(here)
        (found,) = [agent for agent in cluster.agents.values() if agent.bootstrap == address]
        return found
