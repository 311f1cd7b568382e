"""Two agents that advertise one address: requests of groups reach the coordinator, whichever agent a client is at."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from agent.agent import Agent
from agent.server.relay import relay_introduction
from coordinator.commands.admin import ConfigResourceType
from coordinator.commands.security import CreateAcls, DeleteAcls
from coordinator.security.acls import Acl, AclFilter
from protocol.api_versions import ApiKey
from protocol.auth.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import USER, Principal
from protocol.errors import ErrorCode
from protocol.limits import RELAY_INTRODUCTION_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX
from protocol.relay import Introduction, encode_introduction, encode_reply
from protocol.wire import INT32
from tests.support.agent.ledger_parts import until
from tests.support.agent.relaying_agents import (
    Cluster,
    cluster_in,
    connected,
    group_of,
    know_each_other,
    port_of,
)
from tests.support.certificates import TestAuthority
from tests.support.clients.kafka_requests import read_answer

HEARTBEAT = {"generation_id": 1, "member_id": "m"}
RELAY_OF_A = Acl(
    principal=Principal(USER, "a"),
    host="*",
    operation=Operation.CLUSTER_ACTION,
    permission=Permission.ALLOW,
    resource_type=ResourceType.CLUSTER,
    name=CLUSTER_NAME,
    pattern=PatternType.LITERAL,
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster_in(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def agents(cluster: Cluster) -> tuple[Agent, Agent]:
    agents = await cluster.start("a"), await cluster.start("b")
    await know_each_other(*agents)
    return agents


def joining(group: str) -> dict[str, object]:
    return {
        "group_id": group,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }


def relayed(agent: Agent, api: str, outcome: str = "answered") -> float | None:
    labels = {"api": api, "outcome": outcome}
    return agent._metrics.registry.get_sample_value("penstock_relayed_requests_total", labels)


async def test_a_group_has_members_at_both_agents(agents: tuple[Agent, Agent]) -> None:
    here, there = agents
    group = group_of(here, there.broker.session)
    async with connected(port_of(here)) as first, connected(port_of(there)) as second:
        first.send(ApiKey.JOIN_GROUP, 2, joining(group))
        second.send(ApiKey.JOIN_GROUP, 2, joining(group))
        answers = [await client.receive() for client in (first, second)]
        joined = [read_answer(answer, ApiKey.JOIN_GROUP, 2) for answer in answers if answer is not None]
        assert [answer.error_code for answer in joined] == [ErrorCode.none] * 2
        assert joined[0].leader == joined[1].leader
        assert joined[0].generation_id == joined[1].generation_id
        assert sum(len(answer.members) for answer in joined) == 2
        described = await first.ask(
            ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group], "include_authorized_operations": False}
        )
        assert len(described.groups[0].members) == 2
    assert relayed(here, "JoinGroup") == 1
    assert relayed(there, "JoinGroup") is None
    # The clients are gone, and so are their relays.
    await until(lambda: not there._server.table.connections)
    assert here._metrics.registry.get_sample_value("penstock_relay_connections") == 0


async def test_answers_keep_the_order_of_requests_to_several_coordinators(agents: tuple[Agent, Agent]) -> None:
    here, there = agents
    async with connected(port_of(here)) as client:
        groups = [group_of(here, agent.broker.session) for agent in (there, here, there)]
        for group in groups:
            client.send(ApiKey.HEARTBEAT, 0, {"group_id": group, **HEARTBEAT})
        client.send(ApiKey.LIST_GROUPS, 0, {})
        for _ in groups:
            answer = await client.receive()
            assert answer is not None
            assert read_answer(answer, ApiKey.HEARTBEAT, 0).error_code is ErrorCode.unknown_member_id
        answer = await client.receive()
        assert answer is not None
        assert read_answer(answer, ApiKey.LIST_GROUPS, 0).error_code is ErrorCode.none


async def test_agents_with_addresses_of_their_own_send_clients_to_the_coordinator(cluster: Cluster) -> None:
    agents = [await cluster.start(name, advertise=[]) for name in ("a", "b")]
    await know_each_other(*agents)
    group = group_of(agents[0], agents[1].broker.session)
    async with connected(port_of(agents[0])) as client:
        answer = await client.ask(ApiKey.HEARTBEAT, 4, {"group_id": group, **HEARTBEAT})
    assert answer.error_code is ErrorCode.not_coordinator
    assert relayed(agents[0], "Heartbeat") is None


async def test_without_a_listener_for_it_nothing_is_relayed(cluster: Cluster) -> None:
    agents = [await cluster.start(name, listen=["127.0.0.1:0"]) for name in ("a", "b")]
    await know_each_other(*agents)
    group = group_of(agents[0], agents[1].broker.session)
    async with connected(port_of(agents[0])) as client:
        answer = await client.ask(ApiKey.HEARTBEAT, 4, {"group_id": group, **HEARTBEAT})
    assert answer.error_code is ErrorCode.not_coordinator


async def test_a_member_whose_coordinator_dies_asks_for_another_one(agents: tuple[Agent, Agent]) -> None:
    here, there = agents
    group = group_of(here, there.broker.session)
    async with connected(port_of(here)) as client:
        assert (await client.ask(ApiKey.HEARTBEAT, 0, {"group_id": group, **HEARTBEAT})).error_code is (
            ErrorCode.unknown_member_id
        )
        there._server.abort()
        for _ in range(2):
            answer = await client.ask(ApiKey.HEARTBEAT, 0, {"group_id": group, **HEARTBEAT})
            assert answer.error_code is ErrorCode.not_coordinator
    assert (relayed(here, "Heartbeat", "unreachable") or 0) + (relayed(here, "Heartbeat", "lost") or 0) == 2


class TestListing:
    """A client asks each broker of its metadata, and the address leads to any agent: each lists what all have."""

    @staticmethod
    async def commit(agent: Agent, group: str) -> None:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        async with connected(port_of(agent)) as client:
            values = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": "t", "partitions": [partition]}],
            }
            answer = await client.ask(ApiKey.OFFSET_COMMIT, 7, values)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.none

    @staticmethod
    async def listed(agent: Agent) -> dict[str, tuple[str, str]]:
        async with connected(port_of(agent)) as client:
            answer = await client.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        assert answer.error_code is ErrorCode.none
        groups = {row.group_id: (row.group_state, row.group_type) for row in answer.groups}
        assert len(groups) == len(answer.groups)
        return groups

    async def test_each_agent_behind_the_address_lists_the_groups_of_all_once(
        self, agents: tuple[Agent, Agent]
    ) -> None:
        here, _ = agents
        await here.broker.services.topics.auto_create("t", lambda _: None)
        groups = [group_of(here, agent.broker.session) for agent in agents]
        for group in groups:
            await self.commit(here, group)
        member = {
            "group_id": "next",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": timedelta(seconds=10),
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        async with connected(port_of(here)) as client:
            joined = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, member)
        assert joined.error_code is ErrorCode.none
        expected = {**dict.fromkeys(groups, ("Empty", "classic")), "next": ("Stable", "consumer")}
        for agent in agents:
            assert await self.listed(agent) == expected
        assert relayed(here, "ListGroups") is None

    async def test_groups_of_several_coordinators_are_described_together(self, agents: tuple[Agent, Agent]) -> None:
        here, there = agents
        await here.broker.services.topics.auto_create("t", lambda _: None)
        groups = [group_of(here, agent.broker.session) for agent in agents]
        for group in groups:
            await self.commit(here, group)
        unknown = group_of(here, there.broker.session) + "-unknown"
        for at in agents:
            async with connected(port_of(at)) as client:
                values = {"groups": [*groups, unknown], "include_authorized_operations": False}
                answer = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, values)
                rows = {row.group_id: (row.error_code, row.group_state) for row in answer.groups}
                assert {group: rows[group] for group in groups} == dict.fromkeys(groups, (ErrorCode.none, "Empty"))
                assert rows[unknown] in {(ErrorCode.none, "Dead"), (ErrorCode.not_coordinator, "")}
        there._server.abort()
        async with connected(port_of(here)) as client:
            values = {"groups": [groups[1]], "include_authorized_operations": False}
            answer = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, values)
        assert answer.groups[0].error_code is ErrorCode.not_coordinator

    async def test_agents_with_addresses_of_their_own_list_their_own(self, cluster: Cluster) -> None:
        here, there = [await cluster.start(name, advertise=[]) for name in ("a", "b")]
        await know_each_other(here, there)
        await here.broker.services.topics.auto_create("t", lambda _: None)
        group = group_of(here, there.broker.session)
        await self.commit(there, group)
        assert list(await self.listed(there)) == [group]
        assert await self.listed(here) == {}

    async def test_transactional_ids_are_listed_likewise(self, agents: tuple[Agent, Agent], cluster: Cluster) -> None:
        far = await cluster.start("c", advertise=[])
        await know_each_other(*agents, far)
        ids = {f"id-{number}" for number in range(20)}
        async with connected(port_of(far)) as client:
            for name in ids:
                values = {
                    "transactional_id": name,
                    "transaction_timeout": timedelta(seconds=10),
                    "producer_id": -1,
                    "producer_epoch": -1,
                }
                assert (await client.ask(ApiKey.INIT_PRODUCER_ID, 4, values)).error_code is ErrorCode.none
        listed: list[set[str]] = []
        for agent in (*agents, far):
            async with connected(port_of(agent)) as client:
                answer = await client.ask(ApiKey.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
            listed.append({row.transactional_id for row in answer.transaction_states})
        assert listed[0] == listed[1] == ids - listed[2]
        assert 0 < len(listed[2]) < len(ids)


class TestConfigs:
    """Those of an agent, which a request names by its node id: no other agent knows them."""

    @staticmethod
    def named(agent: Agent, **more: object) -> dict[str, object]:
        name = str(agent.broker.services.node_id)
        return {"resource_type": ConfigResourceType.BROKER, "resource_name": name, **more}

    async def described(self, at: Agent, of: Agent) -> dict[str, str | None]:
        resource = self.named(of, configuration_keys=["max.connections", "num.partitions"])
        values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        async with connected(port_of(at)) as client:
            (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, values)).results
        assert result.error_code is ErrorCode.none, result.error_message
        return {config.name: config.value for config in result.configs}

    @pytest.fixture
    async def agents(self, cluster: Cluster) -> tuple[Agent, Agent]:
        agents = [await cluster.start(name, settings={"num.partitions": n}) for name, n in (("a", "3"), ("b", "5"))]
        await know_each_other(*agents)
        return agents[0], agents[1]

    async def test_the_named_agent_describes_and_alters_its_configs(self, agents: tuple[Agent, Agent]) -> None:
        here, there = agents
        assert (await self.described(here, here))["num.partitions"] == "3"
        assert (await self.described(here, there))["num.partitions"] == "5"
        change = {"name": "max.connections", "config_operation": 0, "value": "7000"}
        async with connected(port_of(here)) as client:
            values = {"resources": [self.named(there, configs=[change])], "validate_only": False}
            (row,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)).responses
            assert row.error_code is ErrorCode.none, row.error_message
            assert (await self.described(here, there))["max.connections"] == "7000"
            assert (await self.described(here, here))["max.connections"] != "7000"
            values = {"resources": [self.named(there, configs=[])], "validate_only": False}
            (row,) = (await client.ask(ApiKey.ALTER_CONFIGS, 2, values)).responses
            assert row.error_code is ErrorCode.none, row.error_message
        assert (await self.described(there, there))["max.connections"] != "7000"
        assert relayed(here, "DescribeConfigs") == 2
        assert relayed(here, "IncrementalAlterConfigs") == 1
        assert relayed(here, "AlterConfigs") == 1
        assert relayed(there, "DescribeConfigs") is None

    async def test_a_client_of_an_agent_that_cannot_be_reached_is_disconnected_as_by_that_agent(
        self, agents: tuple[Agent, Agent]
    ) -> None:
        here, there = agents
        there._server.abort()
        values = {"resources": [self.named(there, configuration_keys=None)]}
        for _ in range(2):
            async with connected(port_of(here)) as client:
                assert await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, values) is None
        assert relayed(here, "DescribeConfigs", "unreachable") == 2

    async def test_a_node_id_that_no_agent_has_is_an_error(self, agents: tuple[Agent, Agent]) -> None:
        resource = {"resource_type": ConfigResourceType.BROKER, "resource_name": "77", "configuration_keys": None}
        async with connected(port_of(agents[0])) as client:
            (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})).results
        assert result.error_code is ErrorCode.invalid_request
        assert "Unexpected broker id" in result.error_message

    async def test_agents_with_addresses_of_their_own_send_clients_to_the_named_one(self, cluster: Cluster) -> None:
        here, there = [await cluster.start(name, advertise=[]) for name in ("a", "b")]
        await know_each_other(here, there)
        values = {"resources": [self.named(there, configuration_keys=None)]}
        async with connected(port_of(here)) as client:
            (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, values)).results
        assert result.error_code is ErrorCode.invalid_request


class TestIntroductions:
    async def test_one_that_gives_rights_is_not_believed_without_tls(self, agents: tuple[Agent, Agent]) -> None:
        introduction = Introduction(agent="x", listener="PLAINTEXT", peer="p:1", principal=Principal(USER, "alice"))
        async with connected(port_of(agents[0], "RELAY")) as peer:
            peer.writer.write(encode_introduction(introduction))
            reply = await peer.receive()
            assert reply is not None
            assert b"without TLS no identity" in reply
            assert await peer.receive() is None

    @pytest.mark.parametrize("behind", [b"x", encode_introduction(Introduction(agent="", listener="", peer=""))])
    async def test_nothing_may_come_behind_one_before_it_is_answered(
        self, agents: tuple[Agent, Agent], behind: bytes
    ) -> None:
        async with connected(port_of(agents[0], "RELAY")) as peer:
            peer.writer.write(encode_introduction(Introduction(agent="", listener="", peer="")) + behind)
            assert await peer.receive() is None

    @pytest.mark.parametrize("listener", ["PLAINTEXT", "RELAY"])
    async def test_a_client_is_not_served_where_agents_are_and_an_agent_not_where_clients_are(
        self, agents: tuple[Agent, Agent], listener: str
    ) -> None:
        async with connected(port_of(agents[0], listener)) as peer:
            if listener == "RELAY":
                peer.send(ApiKey.LIST_GROUPS, 0, {})
            else:
                peer.writer.write(encode_introduction(Introduction(agent="", listener="", peer="")))
            assert await peer.receive() is None

    async def test_other_requests_than_those_of_groups_end_the_connection(self, agents: tuple[Agent, Agent]) -> None:
        async with connected(port_of(agents[0], "RELAY")) as peer:
            peer.writer.write(encode_introduction(Introduction(agent="x", listener="PLAINTEXT", peer="p:1")))
            assert await peer.receive() == b"\x01"
            assert (await peer.ask(ApiKey.HEARTBEAT, 0, {"group_id": "g", **HEARTBEAT})) is not None
            assert await peer.ask(ApiKey.LIST_GROUPS, 0, {}) is None

    async def test_what_was_relayed_is_not_relayed_again(self, agents: tuple[Agent, Agent]) -> None:
        here, there = agents
        group = group_of(here, there.broker.session)
        async with connected(port_of(here, "RELAY")) as peer:
            peer.writer.write(encode_introduction(Introduction(agent="x", listener="PLAINTEXT", peer="p:1")))
            assert await peer.receive() == b"\x01"
            answer = await peer.ask(ApiKey.HEARTBEAT, 0, {"group_id": group, **HEARTBEAT})
            assert answer.error_code is ErrorCode.not_coordinator

    async def test_an_oversized_one_closes_the_connection(self, agents: tuple[Agent, Agent]) -> None:
        async with connected(port_of(agents[0], "RELAY")) as peer:
            peer.writer.write(b"\x00\x10\x00\x00")
            assert await peer.receive() is None
            assert await asyncio.wait_for(peer.reader.read(), 10) == b""

    async def test_all_that_arrive_share_the_memory_of_strangers(self, agents: tuple[Agent, Agent]) -> None:
        table = agents[0]._server.table
        async with AsyncExitStack() as stack:
            for _ in range(UNAUTHENTICATED_BYTES_MAX // RELAY_INTRODUCTION_BYTES_MAX + 2):
                peer = await stack.enter_async_context(connected(port_of(agents[0], "RELAY")))
                peer.writer.write(INT32.pack(RELAY_INTRODUCTION_BYTES_MAX) + bytes(1_000))
            await until(lambda: bool(table.unauthenticated_memory.waiting_count))
            assert table.unauthenticated_memory.used_bytes <= UNAUTHENTICATED_BYTES_MAX

    async def test_clients_of_other_agents_leave_places_to_its_own(
        self, agents: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(relay_introduction, "RELAY_CONNECTIONS_MAX", 1)
        introduction = encode_introduction(Introduction(agent="x", listener="PLAINTEXT", peer="p:1"))
        for _ in range(2):  # the place of one that is closed is free again
            async with (
                connected(port_of(agents[0], "RELAY")) as first,
                connected(port_of(agents[0], "RELAY")) as second,
            ):
                first.writer.write(introduction)
                assert await first.receive() == b"\x01"
                second.writer.write(introduction)
                assert b"serves 1 clients of other agents already" in (await second.receive() or b"")
            await until(lambda: not agents[0]._server.table.count_of("RELAY"))


class TestCertificates:
    """Where clients have ACLs, agents relay by certificates, and the coordinator judges the client."""

    @staticmethod
    async def start(
        cluster: Cluster,
        authority: TestAuthority,
        name: str,
        *,
        super_users: str,
        audit_log: str | None = None,
        **more: str,
    ) -> Agent:
        files = authority.issue(name, common_name=name)
        return await cluster.start(
            name,
            audit_log=audit_log,
            settings={
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,RELAY:SSL",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": super_users,
                "listener.name.relay.ssl.keystore.location": str(files.both),
                "listener.name.relay.ssl.truststore.location": str(authority.ca_path),
                "listener.name.relay.ssl.client.auth": "required",
                "listener.name.relay.ssl.principal.mapping.rules": r"RULE:^CN=([^,]*),.*$/$1/",
                **more,
            },
        )

    @pytest.mark.parametrize(("super_users", "outcome"), [("User:a;User:b", "answered"), ("User:x", "unreachable")])
    async def test_an_agent_needs_cluster_action_and_lends_its_rights_to_nobody(
        self,
        cluster: Cluster,
        tmp_path: Path,
        super_users: str,
        outcome: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        authority = TestAuthority(folder=tmp_path)
        here = await self.start(cluster, authority, "a", super_users="User:a;User:b")
        there = await self.start(cluster, authority, "b", super_users=super_users)
        await know_each_other(here, there)
        async with connected(port_of(here)) as client:
            values = {"group_id": group_of(here, there.broker.session), **HEARTBEAT}
            answer = await client.ask(ApiKey.HEARTBEAT, 0, values)
            # Either way the client is denied: by the coordinator, or by this agent where that one rejects it.
            assert answer.error_code is ErrorCode.group_authorization_failed
        assert relayed(here, "Heartbeat", outcome) == 1
        rejections = [record for record in caplog.records if "CLUSTER_ACTION" in getattr(record, "reason", "")]
        assert bool(rejections) is (outcome == "unreachable")

    async def test_an_agent_that_loses_its_right_is_no_longer_believed(self, cluster: Cluster, tmp_path: Path) -> None:
        authority, audit_log = TestAuthority(folder=tmp_path), tmp_path / "audit.log"
        here = await self.start(cluster, authority, "a", super_users="User:x")
        there = await self.start(cluster, authority, "b", super_users="User:x", audit_log=str(audit_log))
        await know_each_other(here, there)
        values = {"group_id": group_of(here, there.broker.session), **HEARTBEAT}
        async with connected(port_of(here)) as client:
            await there.broker.services.ledger.propose(CreateAcls.of([RELAY_OF_A]))
            while relayed(here, "Heartbeat") is None:  # a machine that is slow connects later
                await client.ask(ApiKey.HEARTBEAT, 0, values)
            await there.broker.services.ledger.propose(DeleteAcls.of(AclFilter(principal="User:a")))
            await client.ask(ApiKey.HEARTBEAT, 0, values)
            assert (relayed(here, "Heartbeat"), relayed(here, "Heartbeat", "lost")) == (1, 1)
            await client.ask(ApiKey.HEARTBEAT, 0, values)
            assert relayed(here, "Heartbeat", "unreachable") == 1

        def denials() -> list[dict[str, object]]:
            rows = audit_log.read_text().splitlines() if audit_log.exists() else []
            return [row for row in map(json.loads, rows) if row["api"] == "RelayIntroduction"]

        await until(lambda: bool(denials()))
        (denial,) = denials()
        assert (denial["principal"], denial["operation"], denial["listener"]) == ("User:a", "CLUSTER_ACTION", "RELAY")

    async def test_an_old_view_of_the_acls_ends_no_relay(self, cluster: Cluster, tmp_path: Path) -> None:
        authority, stale = TestAuthority(folder=tmp_path), {"authorizer.stale.max.ms": "100"}
        here = await self.start(cluster, authority, "a", super_users="User:x", **stale)
        there = await self.start(cluster, authority, "b", super_users="User:x", **stale)
        await know_each_other(here, there)
        await there.broker.services.ledger.propose(CreateAcls.of([RELAY_OF_A]))
        values = {"group_id": group_of(here, there.broker.session), **HEARTBEAT}
        async with connected(port_of(here)) as client:
            while (relayed(here, "Heartbeat") or 0) < 3:
                await client.ask(ApiKey.HEARTBEAT, 0, values)
                await until(lambda: there.broker.services.authorizer.is_stale)
        assert relayed(here, "Heartbeat", "lost") is None

    async def test_a_peer_without_a_certificate_is_not_even_heard(self, cluster: Cluster, tmp_path: Path) -> None:
        agent = await self.start(cluster, TestAuthority(folder=tmp_path), "a", super_users="User:a")
        async with connected(port_of(agent, "RELAY")) as peer:
            peer.writer.write(encode_introduction(Introduction(agent="", listener="", peer="")))
            with suppress(ConnectionError):
                assert not (await peer.reader.read()).endswith(encode_reply(""))
            assert not agent._server.table.connections
