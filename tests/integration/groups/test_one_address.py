"""Groups of real clients where one address leads to all agents: requests are relayed to the groups' coordinators."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.groups.group_members import AnyMember, JavaMember, Member, shared_out
from tests.support.auth.plain_users import plain_user
from tests.support.certificates import TestAuthority
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.conditions import wait_until
from tests.support.cluster.one_address import OneAddress, one_address
from tests.support.cluster.relay_listener import RELAY_LISTEN, relay_by_tls, super_users
from tests.support.services.java import JavaProgram

PARTITIONS = 6
RECORDS = 60
GROUPS = {"range-1": "range", "range-2": "range", "consumer-1": "consumer", "consumer-2": "consumer"}
"""Protocols by groups. By rendezvous hashing over three agents not all groups have one coordinator."""
SETTINGS = {"group.initial.rebalance.delay.ms": "300"}
NAMES = ("a", "b", "c")
ADMIN, ALICE = "admin", "alice"

pytestmark = pytest.mark.timeout(240)


@dataclass(slots=True, kw_only=True)
class SharedAddress:
    """Agents behind one address."""

    cluster: Cluster
    address: OneAddress
    clients: Mapping[str, str] = field(default_factory=dict)
    """What every client needs."""

    @property
    def agents(self) -> Sequence[ClusterAgent]:
        return [agent for agent in self.cluster.agents.values() if agent.process.is_running]

    @property
    def bootstrap(self) -> str:
        return self.address.bootstrap

    def relayed(self, outcome: str = "answered") -> float:
        """Requests that agents relayed, with this outcome."""
        return sum(relayed_by(agent, outcome) for agent in self.agents)

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **self.clients})
        (created,) = admin.create_topics([NewTopic(name, PARTITIONS)]).values()
        created.result(30)
        self.produce(name)

    def produce(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **self.clients})
        for number in range(RECORDS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def coordinator(self, group: str) -> ClusterAgent:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **self.clients})
        (future,) = admin.describe_consumer_groups([group]).values()
        node_id = future.result(30).coordinator.id
        (name,) = [row["name"] for row in self.rows() if row["node_id"] == node_id]
        return self.cluster.agents[name]

    def rows(self) -> list[dict[str, str]]:
        with urlopen(f"http://{self.agents[0].http}/api/agents", timeout=10) as answer:
            rows: list[dict[str, str]] = json.load(answer)["agents"]
            return rows


def relayed_by(agent: ClusterAgent, outcome: str) -> float:
    with urlopen(Request(f"http://{agent.http}/metrics"), timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = (sample for each in families for sample in each.samples)
    return sum(
        sample.value
        for sample in samples
        if sample.name == "penstock_relayed_requests_total" and sample.labels["outcome"] == outcome
    )


def read_by(members: Sequence[AnyMember]) -> int:
    return len({where for member in members for where in member.read})


@pytest.fixture
def shared(clusters: ClusterFactory) -> Iterator[SharedAddress]:
    cluster = clusters()
    with one_address() as address:
        options = {"listen": RELAY_LISTEN, "advertise": address.bootstrap}
        for name in NAMES:
            cluster.start(name, options=options, settings=SETTINGS)
        address.agents = [agent.bootstrap for agent in cluster.agents.values()]
        yield SharedAddress(cluster=cluster, address=address)


def test_groups_form_through_one_address_and_go_on_when_a_coordinator_is_killed(shared: SharedAddress) -> None:
    for group in GROUPS:
        shared.make_topic(group)
    with ExitStack() as stack:
        members: dict[str, list[Member]] = {}
        for group, protocol in GROUPS.items():
            members[group] = [Member(shared.bootstrap, group, f"{group}-{n}", protocol=protocol) for n in range(2)]
            for member in members[group]:
                stack.callback(member.leave)
        wait_until(lambda: all(shared_out(each, PARTITIONS) for each in members.values()), "shares of all groups")
        wait_until(lambda: all(read_by(each) == RECORDS for each in members.values()), "all records")
        assert shared.relayed() > 0
        assert_each_agent_answers_for_all(shared)

        os.kill(shared.coordinator("range-1").process.pid, signal.SIGKILL)
        for group in GROUPS:
            shared.produce(group)
        wait_until(lambda: all(read_by(each) == 2 * RECORDS for each in members.values()), "records after the kill")
        for (
            group,
            protocol,
        ) in GROUPS.items():  # a rebalance; a member that leaves a dead coordinator would not be heard
            members[group].append(Member(shared.bootstrap, group, f"{group}-2", protocol=protocol))
            stack.callback(members[group][-1].leave)
        wait_until(
            lambda: all(
                shared_out(each, PARTITIONS) and all(member.has for member in each) for each in members.values()
            ),
            "shares of three members after the kill",
        )


def assert_each_agent_answers_for_all(shared: SharedAddress) -> None:
    """Fail unless clients get what they ask each broker for, whichever agents their connections lead to."""
    names = [str(row["node_id"]) for row in shared.rows()]
    for attempt in range(3):  # the address leads each of them elsewhere
        admin = AdminClient({"bootstrap.servers": shared.bootstrap})
        listed = admin.list_consumer_groups().result(30).valid
        assert sorted(group.group_id for group in listed) == sorted(GROUPS)
        values = {name: str(1_000 + 10 * attempt + number) for number, name in enumerate(names)}
        for name, value in values.items():
            change = ConfigEntry("max.connections", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, name, incremental_configs=[change])
            for altered in admin.incremental_alter_configs([resource]).values():
                altered.result(30)
        for name, value in values.items():
            for described in admin.describe_configs([ConfigResource(ResourceType.BROKER, name)]).values():
                configs = described.result(30)
                assert configs["max.connections"].value == value
                assert configs["node.id"].value == name


@pytest.fixture(scope="module")
def sharing_member(compile_java: Callable[[Path], JavaProgram]) -> JavaProgram:
    return compile_java(Path(__file__).parents[1] / "java" / "SharingMember.java")


@pytest.mark.slow
def test_java_members_share_partitions_through_one_address(
    shared: SharedAddress, sharing_member: JavaProgram, tmp_path: Path
) -> None:
    protocols = {
        "java-classic": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "java-consumer": "consumer",
    }
    with ExitStack() as stack:
        members: dict[str, list[AnyMember]] = {}
        for group, protocol in protocols.items():
            shared.make_topic(group)
            folders = [tmp_path / f"{group}-{number}" for number in range(2)]
            members[group] = [
                JavaMember(sharing_member, shared.bootstrap, group, folder, protocol=protocol) for folder in folders
            ]
            for member in members[group]:
                stack.callback(member.leave)
        wait_until(lambda: all(shared_out(each, PARTITIONS) for each in members.values()), "shares of all groups")
        wait_until(lambda: all(read_by(each) == RECORDS for each in members.values()), "all records")
        os.kill(shared.coordinator("java-classic").process.pid, signal.SIGKILL)
        for group in protocols:
            shared.produce(group)
        wait_until(lambda: all(read_by(each) == 2 * RECORDS for each in members.values()), "records after the kill")


@pytest.fixture
def secured(clusters: ClusterFactory, tmp_path: Path) -> Iterator[SharedAddress]:
    users = tmp_path / "users"
    users.write_text("\n".join(plain_user(name, name) for name in (ADMIN, ALICE)))
    authority, cluster = TestAuthority(folder=tmp_path), clusters()
    with one_address() as address:
        for name in NAMES:
            cluster.start(
                name,
                listen="SASL_PLAINTEXT://127.0.0.1:0",
                env={"PENSTOCK_METRICS_OPEN": "true"},
                options={
                    "listen": RELAY_LISTEN,
                    "advertise": f"SASL_PLAINTEXT://{address.bootstrap}",
                    "plain-users": str(users),
                },
                settings={
                    **SETTINGS,
                    **relay_by_tls(authority, name, "SASL_PLAINTEXT"),
                    "sasl.enabled.mechanisms": "PLAIN",
                    "super.users": super_users([ADMIN], NAMES),
                },
            )
        address.agents = [agent.bootstrap for agent in cluster.agents.values()]
        yield SharedAddress(cluster=cluster, address=address, clients=log_in(ADMIN))


def log_in(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
    }


def test_the_coordinator_judges_the_client_that_another_agent_has_authenticated(secured: SharedAddress) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap, **secured.clients})
    acls = [acl(resource_type, AclOperation.READ) for resource_type in (ResourceType.TOPIC, ResourceType.GROUP)]
    for future in admin.create_acls(acls).values():
        future.result(30)
    for group in GROUPS:
        secured.make_topic(group)
    with ExitStack() as stack:
        # Alice may read, and so her members join: as nobody, they would be rejected.
        members = {
            group: [
                Member(secured.bootstrap, group, f"{group}-{n}", protocol=protocol, **log_in(ALICE)) for n in range(2)
            ]
            for group, protocol in GROUPS.items()
        }
        for member in (member for each in members.values() for member in each):
            stack.callback(member.leave)
        wait_until(lambda: all(shared_out(each, PARTITIONS) for each in members.values()), "shares of all groups")
        wait_until(lambda: all(read_by(each) == RECORDS for each in members.values()), "all records")
    assert secured.relayed() > 0
    assert secured.relayed("unreachable") == 0
    # She may not delete, and so her requests are rejected: as the agents, which are super users, she might.
    relayed = secured.relayed()
    while secured.relayed() == relayed:  # the address may lead to the coordinator by chance
        alice = AdminClient({"bootstrap.servers": secured.bootstrap, **log_in(ALICE)})
        futures = alice.delete_consumer_groups(list(GROUPS), request_timeout=30).values()
        errors = [future.exception(30) for future in futures]
        assert [error_name(error) for error in errors] == ["GROUP_AUTHORIZATION_FAILED"] * len(GROUPS)


def acl(resource_type: ResourceType, operation: AclOperation) -> AclBinding:
    """Alice may perform the operation on all resources of the type."""
    return AclBinding(
        resource_type, "*", ResourcePatternType.LITERAL, f"User:{ALICE}", "*", operation, AclPermissionType.ALLOW
    )


def error_name(error: BaseException | None) -> str:
    return error.args[0].name() if isinstance(error, KafkaException) else str(error)
