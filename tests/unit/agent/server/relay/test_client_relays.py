"""The relays of one client connection, to a coordinator made by hand: identity, loss, silence and limits."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.agent import Agent
from agent.request.connection_epochs import IntroducedEpoch
from agent.request.services import Answer, NoAnswerOwed, Request, Services
from agent.runtime.clock import SystemClock
from agent.runtime.metrics import Metrics
from agent.server.relay import client_relays
from agent.server.relay import relays as relays_module
from agent.server.relay.client_relays import ClientRelays
from agent.server.relay.relay_connection import RelayConnection
from agent.server.relay.relays import Relays
from coordinator.commands.commands import EndSession
from protocol.api_versions import ApiKey
from protocol.auth.principals import GROUP, USER, Principal
from protocol.connection import ServerConnection, read_request_frame
from protocol.errors import ErrorCode
from protocol.limits import RELAY_CONNECTIONS_MAX, RELAYS_PER_CONNECTION_MAX
from protocol.relay import CHANGING_OFFSETS, ClientEpoch
from protocol.types import Position, SessionId
from tests.support.agent.ledger_parts import until
from tests.support.agent.relaying_agents import (
    Cluster,
    HandMadeCoordinator,
    cluster_in,
    group_of,
    hand_made_coordinator,
)
from tests.support.clients.kafka_requests import framed, read_answer

EPOCH = ClientEpoch(SessionId(3), Position(4), 5)
CLIENT = Request(
    frame=read_request_frame(0, memoryview(framed(ApiKey.LIST_GROUPS, 0, {}))[4:]),
    listener="PLAINTEXT",
    peer="10.0.0.7:1234",
    principal=Principal(USER, "alice"),
    mechanism="OAUTHBEARER",
    groups=(Principal(GROUP, "g"),),
    connection_epoch=IntroducedEpoch(EPOCH),
)


@dataclass(slots=True, kw_only=True)
class Scene:
    """An agent, a coordinator made by hand, and the relays of one client connection."""

    cluster: Cluster
    agent: Agent
    coordinator: HandMadeCoordinator
    session: SessionId
    metrics: Metrics
    relays: Relays
    client: ClientRelays

    @property
    def services(self) -> Services:
        return replace(self.agent.broker.services, metrics=self.metrics)

    @property
    def group(self) -> str:
        return group_of(self.agent, self.session)

    async def send(self, api_key: ApiKey, version: int, values: dict[str, Any], **client: object) -> Answer:
        (frame,) = ServerConnection().receive_data(framed(api_key, version, values, client_id="c"))
        request = structs.replace(CLIENT, frame=frame, **client)
        return await self.client.handler(api_key)(self.services, request)

    async def heartbeat(self, group: str | None = None, **client: object) -> Answer:
        values = {"group_id": group or self.group, "generation_id": 1, "member_id": "m"}
        return await self.send(ApiKey.HEARTBEAT, 0, values, **client)

    async def join(self, *, version: int = 0, metadata: bytes = b"m") -> asyncio.Future[Any]:
        values = {
            "group_id": self.group,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
            "reason": None,
        }
        pending = await self.send(ApiKey.JOIN_GROUP, version, values)
        assert isinstance(pending, asyncio.Future)
        return pending

    @property
    def open_relays(self) -> float | None:
        return self.metrics.registry.get_sample_value("penstock_relay_connections")

    def outcomes(self) -> Counter[str]:
        samples = [sample for family in self.metrics.relayed_requests.collect() for sample in family.samples]
        outcomes = Counter[str]()
        for sample in samples:
            if sample.name.endswith("_total"):
                outcomes[sample.labels["outcome"]] += int(sample.value)
        return outcomes


@asynccontextmanager
async def scene(folder: Path, *, connections_max: int = RELAY_CONNECTIONS_MAX) -> AsyncIterator[Scene]:
    async with cluster_in(folder) as cluster, hand_made_coordinator() as (coordinator, port):
        agent = await cluster.start("a")
        session = await cluster.add_session("b", 2, port)
        await until(lambda: session in agent.broker.state.sessions)
        metrics = Metrics()
        relays = Relays(
            state=lambda: agent.broker.state,
            tls=lambda: None,
            clock=SystemClock(),
            metrics=metrics,
            connections_max=connections_max,
        )
        client = ClientRelays(relays, agent="a")
        yield Scene(
            cluster=cluster,
            agent=agent,
            coordinator=coordinator,
            session=session,
            metrics=metrics,
            relays=relays,
            client=client,
        )
        coordinator.is_reading.set()
        coordinator.is_answering.set()
        client.close()
        await until(lambda: not coordinator.open_count)


def error_code(answer: Answer, api_key: ApiKey = ApiKey.HEARTBEAT, version: int = 0) -> ErrorCode:
    assert answer is not None
    assert not isinstance(answer, asyncio.Future)
    code: ErrorCode = read_answer(b"".join(map(bytes, answer)), api_key, version).error_code
    return code


class TestRelaying:
    async def test_the_client_is_introduced_once_and_its_requests_come_as_they_are(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            for _ in range(2):
                answer = await here.heartbeat()
                assert answer is not None
                assert not isinstance(answer, asyncio.Future)
                assert b"".join(map(bytes, answer))[4:] == b"answered"
            (introduction,) = here.coordinator.introductions
            assert (introduction.agent, introduction.listener, introduction.peer) == ("a", "PLAINTEXT", "10.0.0.7:1234")
            assert (introduction.principal, introduction.groups) == (CLIENT.principal, CLIENT.groups)
            assert (introduction.mechanism, introduction.epoch) == ("OAUTHBEARER", EPOCH)
            assert len(here.coordinator.requests) == 2
            assert here.outcomes() == {"answered": 2}

    async def test_a_client_that_authenticates_again_with_other_groups_is_introduced_again(
        self, tmp_path: Path
    ) -> None:
        async with scene(tmp_path) as here:
            await here.heartbeat()
            await here.heartbeat(groups=())
            assert [each.groups for each in here.coordinator.introductions] == [CLIENT.groups, ()]
            await until(lambda: here.coordinator.open_count == 1)

    async def test_a_request_whose_group_cannot_be_read_is_this_agents(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            await here.send(ApiKey.DESCRIBE_GROUPS, 0, {"groups": []})
            assert here.coordinator.introductions == []

    async def test_the_relay_that_was_used_longest_ago_makes_way(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            port = here.agent.broker.state.sessions[here.session].endpoints[-1].port
            others = range(RELAYS_PER_CONNECTION_MAX)
            sessions = [await here.cluster.add_session(f"c{number}", 10 + number, port) for number in others]
            sessions.insert(0, here.session)
            await until(lambda: sessions[-1] in here.agent.broker.state.sessions)
            for session in sessions:
                await here.heartbeat(group_of(here.agent, session))
            await until(lambda: here.coordinator.open_count == RELAYS_PER_CONNECTION_MAX)
            assert len(here.coordinator.introductions) == len(sessions)

    @pytest.mark.parametrize("api_key", sorted(CHANGING_OFFSETS))
    async def test_s23_what_changes_offsets_and_waited_for_too_long_is_not_relayed(
        self, tmp_path: Path, api_key: ApiKey
    ) -> None:
        of_group: dict[ApiKey, tuple[int, dict[str, object]]] = {
            ApiKey.OFFSET_COMMIT: (2, {"generation_id_or_member_epoch": 1, "member_id": "m", "topics": []}),
            ApiKey.TXN_OFFSET_COMMIT: (
                0,
                {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "topics": []},
            ),
            ApiKey.OFFSET_DELETE: (0, {"topics": []}),
            ApiKey.DELETE_GROUPS: (0, {}),
        }
        version, values = of_group[api_key]
        async with scene(tmp_path) as here:
            named = {"groups_names": [here.group]} if api_key == ApiKey.DELETE_GROUPS else {"group_id": here.group}
            for waited_s, relayed_count in ((5.5, 0), (0.0, 1)):
                arrived_s = here.services.clock.monotonic_s() - waited_s
                assert await here.send(api_key, version, {**values, **named}, arrived_s=arrived_s) is not None
                assert len(here.coordinator.requests) == relayed_count

    async def test_s23_then_it_is_answered_as_by_an_agent_that_does_not_coordinate_the_group(
        self, tmp_path: Path
    ) -> None:
        async with scene(tmp_path) as here:
            arrived_s = here.services.clock.monotonic_s() - 5.5
            answer = await here.send(ApiKey.DELETE_GROUPS, 0, {"groups_names": [here.group]}, arrived_s=arrived_s)
            assert answer is not None
            assert not isinstance(answer, asyncio.Future)
            (row,) = read_answer(b"".join(map(bytes, answer)), ApiKey.DELETE_GROUPS, 0).results
            assert row.error_code is ErrorCode.not_coordinator

    @pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux bounds a single connection")
    async def test_s23_what_the_coordinators_machine_does_not_receive_soon_is_not_sent_again(
        self, tmp_path: Path
    ) -> None:
        async with scene(tmp_path) as here:
            await here.heartbeat()
            (relay,) = here.client._connections.values()
            assert relay._transport is not None
            connection = relay._transport.get_extra_info("socket")
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5_000


class TestLosing:
    async def test_a_request_without_an_answer_is_answered_here(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            here.coordinator.answer = None
            assert error_code(await here.heartbeat()) is ErrorCode.not_coordinator
            assert here.outcomes() == {"lost": 1}
            here.coordinator.answer = b"answered"  # and the next one finds a new connection
            await here.heartbeat()
            assert here.outcomes() == {"lost": 1, "answered": 1}

    async def test_a_relay_that_is_lost_in_the_turn_of_its_reply_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:

            def lost_behind_reply(relay: RelayConnection, nbytes: int) -> None:
                received(relay, nbytes)
                relay.connection_lost(None)

            received = RelayConnection.buffer_updated
            patch.setattr(RelayConnection, "buffer_updated", lost_behind_reply)
            async with scene(tmp_path) as here:
                assert error_code(await here.heartbeat()) is ErrorCode.not_coordinator
                patch.undo()
                here.relays._retry_s.clear()
                await here.heartbeat()
                assert here.outcomes() == {"unreachable": 1, "answered": 1}

    @pytest.mark.parametrize("version", [0, 9])
    async def test_so_is_one_whose_answer_may_take_minutes(self, tmp_path: Path, version: int) -> None:
        async with scene(tmp_path) as here:
            here.coordinator.answer = None
            pending = await here.join(version=version)
            assert error_code(await pending, ApiKey.JOIN_GROUP, version) is ErrorCode.not_coordinator

    async def test_and_a_member_that_waits_for_its_assignment(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            here.coordinator.answer = None
            values = {"group_id": here.group, "generation_id": 1, "member_id": "m", "assignments": []}
            pending = await here.send(ApiKey.SYNC_GROUP, 0, values)
            assert isinstance(pending, asyncio.Future)
            assert error_code(await pending, ApiKey.SYNC_GROUP) is ErrorCode.not_coordinator

    @pytest.mark.parametrize(("version", "is_closed"), [(3, True), (5, False)])
    async def test_s7_a_v1_commit_closes_the_clients_connection(
        self, tmp_path: Path, version: int, is_closed: bool
    ) -> None:
        values = {
            "transactional_id": "t",
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [],
        }
        async with scene(tmp_path) as here:
            here.coordinator.answer = None
            sending = here.send(ApiKey.TXN_OFFSET_COMMIT, version, {**values, "group_id": here.group})
            if is_closed:
                with pytest.raises(NoAnswerOwed):
                    await sending
            else:
                assert await sending is not None

    async def test_a_request_about_another_agents_configs_closes_the_clients_connection(self, tmp_path: Path) -> None:
        resource = {"resource_type": 4, "resource_name": "2", "configuration_keys": None}
        async with scene(tmp_path) as here:
            here.coordinator.answer = None
            with pytest.raises(NoAnswerOwed, match="agent b, which the request names, closed its relay"):
                await here.send(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
            assert here.outcomes() == {"lost": 1}


class TestSilence:
    """A coordinator that neither answers nor closes: it hangs, or the network between the agents swallows packets."""

    async def test_a_request_without_an_answer_in_time_is_answered_here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_relays, "RELAYED_ANSWER_SECONDS_MAX", 0.2)
        async with scene(tmp_path) as here:
            here.coordinator.is_answering.clear()
            assert error_code(await here.heartbeat()) is ErrorCode.not_coordinator
            await until(lambda: not here.open_relays)
            here.coordinator.is_answering.set()
            await here.heartbeat()  # by another relay: a late answer to the first one is no answer to this one
            assert here.outcomes() == {"lost": 1, "answered": 1}

    async def test_behind_a_member_that_joins_an_answer_may_take_as_long(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_relays, "RELAYED_ANSWER_SECONDS_MAX", 0.0)
        async with scene(tmp_path) as here:
            here.coordinator.is_answering.clear()
            joining = await here.join()
            heartbeat = asyncio.create_task(here.heartbeat())
            await until(lambda: len(here.coordinator.requests) == 1)
            here.coordinator.is_answering.set()
            assert await joining
            assert await heartbeat is not None
            assert here.outcomes() == {"answered": 2}

    async def test_the_bytes_of_a_request_are_its_clients_until_the_coordinator_takes_them(
        self, tmp_path: Path
    ) -> None:
        async with scene(tmp_path) as here:
            await here.heartbeat()
            here.coordinator.is_reading.clear()
            await here.join()  # the coordinator waits in the middle of it
            joining = asyncio.create_task(here.join(metadata=bytes(32 << 20)))
            (relay,) = here.client._connections.values()
            await until(lambda: relay._writable is not None)
            assert not joining.done()
            here.coordinator.is_reading.set()
            assert await (await joining)

    async def test_a_drain_leaves_members_that_join_and_waits_for_other_answers(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            here.coordinator.is_answering.clear()
            heartbeat = asyncio.create_task(here.heartbeat())
            await until(lambda: len(here.coordinator.requests) == 1)
            here.client.drain()
            here.coordinator.is_answering.set()
            await heartbeat
            assert here.outcomes() == {"answered": 1}
            here.coordinator.is_answering.clear()
            assert error_code(await (await here.join()), ApiKey.JOIN_GROUP) is ErrorCode.not_coordinator

    async def test_a_member_that_joined_before_the_drain_is_answered_too(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            here.coordinator.is_answering.clear()
            joining = await here.join()
            await until(lambda: len(here.coordinator.requests) == 1)
            here.client.drain()
            assert error_code(await joining, ApiKey.JOIN_GROUP) is ErrorCode.not_coordinator


class TestUnreachable:
    @pytest.mark.parametrize("reply", ["no rights", None])
    async def test_an_agent_that_rejects_or_stays_silent(
        self, tmp_path: Path, reply: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(relays_module, "RELAY_CONNECT_SECONDS_MAX", 0.2)
        async with scene(tmp_path) as here:
            here.coordinator.reply = reply
            for _ in range(2):
                assert error_code(await here.heartbeat()) is ErrorCode.not_coordinator
            assert len(here.coordinator.introductions) == 1  # the second request came too soon for another try
            assert here.outcomes() == {"unreachable": 2}
            warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
            reasons = [getattr(record, "reason", "") for record in warnings if "relayed" in record.message]
            assert reasons == ["it rejects this agent: no rights" if reply else "it did not answer within 0 s"]

    async def test_an_agent_without_the_listener(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            other = await here.cluster.add_session("old", 3, None)
            await until(lambda: other in here.agent.broker.state.sessions)
            assert error_code(await here.heartbeat(group_of(here.agent, other))) is ErrorCode.not_coordinator
            assert here.coordinator.introductions == []

    async def test_an_agent_that_nothing_answers_for(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            other = await here.cluster.add_session("dead", 3, 1)
            await until(lambda: other in here.agent.broker.state.sessions)
            assert error_code(await here.heartbeat(group_of(here.agent, other))) is ErrorCode.not_coordinator
            assert here.outcomes() == {"unreachable": 1}

    async def test_beyond_the_limit_of_connections_nothing_is_relayed(self, tmp_path: Path) -> None:
        async with scene(tmp_path, connections_max=0) as here:
            assert error_code(await here.heartbeat()) is ErrorCode.not_coordinator
            assert here.coordinator.introductions == []

    async def test_relays_end_with_the_session_of_their_coordinator(self, tmp_path: Path) -> None:
        async with scene(tmp_path) as here:
            await here.heartbeat()
            assert here.coordinator.open_count == 1
            await here.relays.close_ended()
            assert here.coordinator.open_count == 1
            await here.services.ledger.propose(EndSession(session=here.session))
            await here.relays.close_ended()
            await until(lambda: here.coordinator.open_count == 0)
