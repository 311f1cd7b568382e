"""Connections before their clients have authenticated, over real sockets."""

import asyncio
import struct
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from unittest import mock

import pytest
from msgspec import structs

from agent.config.sasl_settings import SaslSettings
from agent.server import connection_table
from coordinator.commands.delegation_tokens import ExpireDelegationToken
from coordinator.ledger.port import LedgerUnavailable
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import DENIAL_BARRIER_SECONDS, SASL_FRAME_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX
from protocol.types import Position
from protocol.wire import INT32
from tests.support.agent.server_peers import until
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.login_server import LISTENER, PASSWORD, LoginServer, RawPeer, credential, login_server
from tests.support.auth.sasl_frames import (
    api_versions,
    authenticate,
    handshake,
    header,
    metadata,
    read_authenticate_answer,
    read_handshake_answer,
)
from tests.support.commands.every_command import CREATE_TOKEN, TOKEN_ID


class TestAuthenticating:
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_a_client_with_the_password_is_served(self, version: int) -> None:
        async with login_server() as login:
            peer = await login.connect()
            assert struct.unpack_from(">h", await peer.ask(api_versions()), 4) == (0,)
            assert (await peer.log_in(version=version)).error_code == 0
            assert await peer.serves()
            assert await peer.serves()
            assert (len(login.table.unauthenticated), len(login.table.connections)) == (0, 1)
            labels = {"listener": LISTENER, "mechanism": "SCRAM-SHA-256"}
            assert login.count("penstock_authentications_total", labels) == 1
            assert login.count("penstock_connections_accepted_total", {"listener": LISTENER}) == 1

    async def test_plain_checks_the_same_password(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN"))
            answer = await peer.ask(authenticate(b"\0alice\0" + PASSWORD.encode()))
            assert read_authenticate_answer(answer).error_code == 0
            assert await peer.serves()

    async def test_raw_tokens_are_answered_raw(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN", version=0))
            assert await peer.ask(b"\0alice\0" + PASSWORD.encode()) == b""
            assert await peer.serves()

    async def test_what_was_sent_behind_the_last_token_is_served(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN"))
            request = bytes(api_versions())
            behind = INT32.pack(len(request)) + request[:5]
            token = bytes(authenticate(b"\0alice\0" + PASSWORD.encode()))
            peer.writer.write(INT32.pack(len(token)) + token + INT32.pack(len(request)) + request + behind)
            assert read_authenticate_answer(await peer.receive() or b"").error_code == 0
            assert await peer.receive() is not None
            peer.writer.write(request[5:])
            assert await peer.receive() is not None

    async def test_pipelined_frames_are_answered_one_by_one(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            peer.send(api_versions(), handshake("PLAIN"), authenticate(b"\0alice\0" + PASSWORD.encode()))
            answers = [await peer.receive() for _ in range(3)]
            assert all(answers)
            assert await peer.serves()

    async def test_a_token_larger_than_the_first_buffer_is_received(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN"))
            answer = await peer.ask(authenticate(b"\0alice\0" + b"x" * 100_000))
            assert read_authenticate_answer(answer).error_code == ErrorCode.sasl_authentication_failed
            assert await peer.is_closed()
            assert login.table.unauthenticated_memory.used_bytes == 0


class TestFailing:
    @pytest.mark.parametrize("client", [DrawnScramClient(password="other"), DrawnScramClient(user="nobody")])
    async def test_the_answer_waits_and_says_nothing_about_the_user(self, client: DrawnScramClient) -> None:
        async with login_server() as login:
            peer = await login.connect()
            answer = await peer.log_in(client)
            assert answer.error_code == ErrorCode.sasl_authentication_failed
            assert answer.message == (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                "SCRAM-SHA-256"
            )
            assert await peer.is_closed()
            assert login.clock.delays == [0.1]
            labels = {"listener": LISTENER, "mechanism": "SCRAM-SHA-256"}
            assert login.count("penstock_authentication_failures_total", labels) == 1

    async def test_further_failures_of_an_address_wait_longer(self) -> None:
        async with login_server() as login:
            for _ in range(12):
                peer = await login.connect()
                await peer.ask(handshake("PLAIN"))
                await peer.ask(authenticate(b"\0alice\0no"))
            assert login.clock.delays == pytest.approx([*[0.1] * 10, 0.2, 0.4])

    async def test_a_mechanism_that_is_not_enabled(self) -> None:
        async with login_server(SaslSettings(mechanisms=("SCRAM-SHA-256",))) as login:
            peer = await login.connect()
            answer = read_handshake_answer(await peer.ask(handshake("PLAIN")))
            assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
            assert answer.mechanisms == ("SCRAM-SHA-256",)
            assert await peer.is_closed()

    @pytest.mark.parametrize(
        "frame",
        [metadata(), authenticate(b"\0alice\0w"), b"GET / HTTP/1.1", b"", header(18, 3, is_flexible=True)],
    )
    async def test_any_other_request_closes_the_connection(self, frame: bytes) -> None:
        async with login_server() as login:
            peer = await login.connect()
            peer.send(frame)
            assert await peer.is_closed()

    async def test_a_recorded_last_message_is_worth_nothing(self) -> None:
        async with login_server() as login:
            client, victim, thief = DrawnScramClient(), await login.connect(), await login.connect()
            await victim.ask(handshake("SCRAM-SHA-256"))
            first = read_authenticate_answer(await victim.ask(authenticate(client.first())))
            recorded = client.final(first.token)
            await victim.ask(authenticate(recorded))
            await thief.ask(handshake("SCRAM-SHA-256"))
            await thief.ask(authenticate(client.first()))
            answer = read_authenticate_answer(await thief.ask(authenticate(recorded)))
            assert answer.error_code == ErrorCode.sasl_authentication_failed

    async def test_a_credential_deleted_within_the_exchange_is_worth_nothing(self) -> None:
        async with login_server() as login:
            client, peer = DrawnScramClient(), await login.connect()
            await peer.ask(handshake("SCRAM-SHA-256"))
            first = read_authenticate_answer(await peer.ask(authenticate(client.first())))
            login.credentials.by_key.clear()
            peer.send(authenticate(client.final(first.token)))
            assert await peer.is_closed()


class TestAudit:
    async def lines(self, login: LoginServer) -> list[Mapping[str, object]]:
        await login.audit_log.flush()
        names = ("principal", "mechanism", "host", "listener", "api", "decision", "rule")
        return [{name: line[name] for name in names} for line in login.audit_log.sink.lines]

    async def test_both_outcomes_are_recorded(self) -> None:
        async with login_server() as login:
            for client in (DrawnScramClient(), DrawnScramClient(user="eve")):
                await (await login.connect()).log_in(client)
            shared = {
                "mechanism": "SCRAM-SHA-256",
                "host": "127.0.0.1",
                "listener": LISTENER,
                "api": "SaslAuthenticate",
            }
            assert await self.lines(login) == [
                {"principal": "User:alice", "decision": "authenticated", "rule": "", **shared},
                {"principal": "User:eve", "decision": "rejected", "rule": "the user is not known", **shared},
            ]

    async def test_so_are_those_of_a_re_authentication(self) -> None:
        settings = SaslSettings(mechanisms=("SCRAM-SHA-256",), reauth_ms={"SCRAM-SHA-256": 60_000})
        async with login_server(settings) as login:
            peer = await login.connect()
            await peer.log_in()
            login.clock.seconds += 5
            await peer.log_in()
            login.clock.seconds += 5
            await peer.log_in(DrawnScramClient(password="other"))
            assert [(line["decision"], line["rule"]) for line in await self.lines(login)] == [
                ("authenticated", ""),
                ("authenticated", ""),
                ("rejected", "the password is wrong"),
            ]


class TestLimits:
    async def begin(self, login: LoginServer, frame_bytes: int) -> RawPeer:
        peer = await login.connect()
        peer.writer.write(INT32.pack(frame_bytes) + b"\0\x24" + bytes(600))
        return peer

    @pytest.mark.parametrize("frame_bytes", [SASL_FRAME_BYTES_MAX + 1, 100 << 20, -1])
    async def test_a_larger_frame_closes_the_connection_before_it_arrives(self, frame_bytes: int) -> None:
        async with login_server() as login:
            peer = await login.connect()
            peer.writer.write(struct.pack(">i", frame_bytes))
            assert await peer.is_closed()
            assert login.count("penstock_connections_closed_total", {"reason": "malformed"}) == 1

    async def test_a_slow_client_is_closed(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN"))
            login.clock.expire()
            assert await peer.is_closed()
            assert login.count("penstock_connections_closed_total", {"reason": "unauthenticated"}) == 1

    async def test_one_that_has_authenticated_is_not(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.log_in()
            login.clock.expire()
            assert await peer.serves()

    async def test_frames_of_strangers_share_a_bound_and_wait_for_their_turn(self) -> None:
        count = UNAUTHENTICATED_BYTES_MAX // (SASL_FRAME_BYTES_MAX + 4)
        async with login_server() as login:
            memory = login.table.unauthenticated_memory
            first = [await self.begin(login, SASL_FRAME_BYTES_MAX) for _ in range(count)]
            await until(lambda: memory.used_bytes == count * (SASL_FRAME_BYTES_MAX + 4))
            behind = await self.begin(login, SASL_FRAME_BYTES_MAX)
            await until(lambda: memory.waiting_count == 1)
            assert memory.used_bytes <= UNAUTHENTICATED_BYTES_MAX
            first[0].writer.transport.abort()
            await until(lambda: memory.waiting_count == 0)
            behind.writer.write(bytes(SASL_FRAME_BYTES_MAX))
            assert await behind.is_closed()

    async def test_their_memory_is_apart_from_that_of_clients(self) -> None:
        async with login_server() as login:
            await self.begin(login, SASL_FRAME_BYTES_MAX)
            await until(lambda: login.table.unauthenticated_memory.used_bytes > 0)
            assert login.table.memory.used_bytes == 0

    async def test_strangers_leave_connections_to_clients(self) -> None:
        with mock.patch.object(connection_table, "UNAUTHENTICATED_CONNECTIONS_MAX", 1):
            async with login_server() as login:
                client = await login.connect()
                await client.log_in()
                stranger = await login.connect()
                await stranger.ask(handshake("PLAIN"))
                assert await (await login.connect()).is_closed()
                assert await client.serves()

    async def test_a_peer_that_does_not_read_is_closed(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            unknown = header(18, 99)
            await until(lambda: len(login.table.unauthenticated) == 1)
            peer.send(*[unknown] * 20_000)
            await until(lambda: not login.table.unauthenticated)

    async def test_the_end_of_the_server_closes_them(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.ask(handshake("PLAIN"))
            login.server.abort()
            assert await peer.is_closed()
            assert await (await login.connect()).is_closed()


class TestBarrier:
    """Safety rule S16: before a user is looked up, everything is applied that was in the ledger before."""

    async def log_in_as_one_created_elsewhere(
        self, monkeypatch: pytest.MonkeyPatch, log_in: Callable[[RawPeer], Awaitable[int]]
    ) -> list[bool]:
        """Logs in while the agent learns of the user by a barrier alone; the answers of all barriers."""
        passed: list[bool] = []
        async with login_server() as login:
            bob = ("bob", ScramMechanism.SCRAM_SHA_256)
            original = login.barrier.passes

            async def passes(seconds_max: float) -> bool:
                passed.append(await original(seconds_max))
                login.credentials.set(bob, credential())
                return passed[-1]

            monkeypatch.setattr(login.barrier, "passes", passes)
            assert await log_in(await login.connect()) == 0
        return passed

    @pytest.mark.parametrize("version", [0, 2])
    async def test_one_that_another_agent_created_logs_in_by_scram(
        self, monkeypatch: pytest.MonkeyPatch, version: int
    ) -> None:
        async def log_in(peer: RawPeer) -> int:
            return (await peer.log_in(DrawnScramClient(user="bob"), version=version)).error_code

        assert await self.log_in_as_one_created_elsewhere(monkeypatch, log_in) == [True]

    async def test_and_by_plain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def log_in(peer: RawPeer) -> int:
            await peer.ask(handshake("PLAIN"))
            return read_authenticate_answer(await peer.ask(authenticate(b"\0bob\0" + PASSWORD.encode()))).error_code

        assert await self.log_in_as_one_created_elsewhere(monkeypatch, log_in) == [True]

    @pytest.mark.parametrize("client", [DrawnScramClient(), DrawnScramClient(password="x"), DrawnScramClient(user="x")])
    async def test_every_login_takes_it_once(self, monkeypatch: pytest.MonkeyPatch, client: DrawnScramClient) -> None:
        async with login_server() as login:
            begun: list[asyncio.Future[Position]] = []

            def begin_barrier() -> asyncio.Future[Position]:
                begun.append(original())
                return begun[-1]

            original = login.ledger.begin_barrier
            monkeypatch.setattr(login.ledger, "begin_barrier", begin_barrier)
            await (await login.connect()).log_in(client)
            assert len(begun) == 1

    async def test_without_the_ledger_who_is_known_logs_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with login_server() as login:

            async def away() -> object:
                raise LedgerUnavailable("away")

            monkeypatch.setattr(login.ledger.backend, "head", away)
            assert (await (await login.connect()).log_in()).error_code == 0
            stranger = await (await login.connect()).log_in(DrawnScramClient(user="bob"))
            assert stranger.error_code == ErrorCode.sasl_authentication_failed


class TestDeletion:
    async def test_the_connections_of_a_deleted_credential_end(self) -> None:
        async with login_server() as login:
            peer, other = await login.connect(), await login.connect()
            await peer.log_in()
            await other.log_in(DrawnScramClient())
            login.credentials.set(next(iter(login.credentials.by_key)), None)
            login.connections.end_deleted()
            assert await peer.is_closed()
            assert await other.is_closed()
            assert login.count("penstock_connections_closed_total", {"reason": "credential_deleted"}) == 2

    async def test_a_closed_connection_is_forgotten(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            await peer.log_in()
            peer.writer.close()
            await until(lambda: not login.table.connections)
            login.credentials.set(next(iter(login.credentials.by_key)), None)
            login.connections.end_deleted()
            assert login.count("penstock_connections_closed_total", {"reason": "credential_deleted"}) == 0


class TestTokens:
    async def created(self, login: LoginServer, mechanism: ScramMechanism) -> DrawnScramClient:
        """A client with a new token of alice's, which lasts a minute."""
        await login.ledger.propose(structs.replace(CREATE_TOKEN, renewal_ms=60_000))
        secret = b64encode(login.tokens.hmac_of(TOKEN_ID)).decode()
        return DrawnScramClient(mechanism=mechanism, user=TOKEN_ID, password=secret, extensions=",tokenauth=true")

    @pytest.mark.parametrize("mechanism", ScramMechanism)
    async def test_a_client_with_a_token_is_its_owner_until_its_end(self, mechanism: ScramMechanism) -> None:
        async with login_server() as login:
            client = await self.created(login, mechanism)
            peer = await login.connect()
            answer = await peer.log_in(client)
            assert (answer.error_code, answer.lifetime_ms) == (0, 60_000)
            assert await peer.serves()
            await login.audit_log.flush()
            (event,) = login.audit_log.sink.lines
            assert (event["principal"], event["decision"]) == ("User:alice", "authenticated")
            login.clock.seconds += 61
            login.connections.end_deleted()
            assert await peer.is_closed()
            assert login.count("penstock_connections_closed_total", {"reason": "token_ended"}) == 1
            assert (await (await login.connect()).log_in(client)).error_code == ErrorCode.sasl_authentication_failed

    async def test_its_connections_end_when_it_is_removed(self) -> None:
        async with login_server() as login:
            client = await self.created(login, ScramMechanism.SCRAM_SHA_256)
            peer, user = await login.connect(), await login.connect()
            await peer.log_in(client)
            await user.log_in()
            command = ExpireDelegationToken(token_id=TOKEN_ID, requester="User:alice", period_ms=None)
            await login.ledger.propose(command)
            login.connections.end_deleted()
            assert await peer.is_closed()
            assert await user.serves()

    async def test_a_client_with_a_token_gets_no_other_one(self) -> None:
        async with login_server() as login:
            client = await self.created(login, ScramMechanism.SCRAM_SHA_256)
            peer, user = await login.connect(), await login.connect()
            await peer.log_in(client)
            await user.log_in()
            describe = header(41, 1) + struct.pack(">i", -1)
            refused, allowed = await peer.ask(describe), await user.ask(describe)
            assert struct.unpack_from(">h", refused, 4) == (ErrorCode.delegation_token_request_not_allowed,)
            assert struct.unpack_from(">h", allowed, 4) == (0,)
            assert TOKEN_ID.encode() in allowed

    @pytest.mark.parametrize(
        ("user", "extensions"), [(TOKEN_ID, ""), ("alice", ",tokenauth=true"), ("other", ",tokenauth=true")]
    )
    async def test_ids_and_names_are_not_mistaken_for_each_other(self, user: str, extensions: str) -> None:
        async with login_server() as login:
            client = await self.created(login, ScramMechanism.SCRAM_SHA_256)
            client.user, client.extensions = user, extensions
            if user == "alice":
                client.password = PASSWORD
            answer = await (await login.connect()).log_in(client)
            assert answer.error_code == ErrorCode.sasl_authentication_failed


class TestReauthentication:
    SETTINGS = SaslSettings(mechanisms=("SCRAM-SHA-256", "PLAIN"), reauth_ms={"SCRAM-SHA-256": 60_000})

    async def test_the_lifetime_is_in_the_answer_and_a_request_behind_it_closes_the_connection(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            assert (await peer.log_in()).lifetime_ms == 60_000
            assert await peer.serves()
            login.clock.seconds += 61
            peer.send(api_versions())
            assert await peer.is_closed()
            assert login.count("penstock_connections_closed_total", {"reason": "session_expired"}) == 1

    async def test_a_client_that_authenticates_again_goes_on(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            await peer.log_in()
            for _ in range(3):
                login.clock.seconds += 50
                assert (await peer.log_in()).lifetime_ms == 60_000
                assert await peer.serves()

    async def test_even_behind_the_end_of_its_session(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            await peer.log_in()
            login.clock.seconds += 100
            assert (await peer.log_in()).error_code == 0

    async def test_once_a_second_at_most(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            await peer.log_in()
            login.clock.seconds += 5
            await peer.log_in()
            answer = read_handshake_answer(await peer.ask(handshake("SCRAM-SHA-256")))
            assert answer.error_code == ErrorCode.illegal_sasl_state

    async def test_as_another_user_it_is_closed(self) -> None:
        async with login_server(self.SETTINGS) as login:
            login.credentials.set(("bob", DrawnScramClient().mechanism), next(iter(login.credentials.by_key.values())))
            peer = await login.connect()
            await peer.log_in()
            answer = await peer.log_in(DrawnScramClient(user="bob"))
            assert answer.message == "Cannot change principals during re-authentication from User.alice: User.bob"
            assert await peer.is_closed()
            assert login.clock.delays == [DENIAL_BARRIER_SECONDS, 0.1]

    async def test_by_another_mechanism_it_is_closed(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            await peer.log_in()
            await peer.ask(handshake("PLAIN"))
            answer = read_authenticate_answer(await peer.ask(authenticate(b"\0alice\0" + PASSWORD.encode())))
            assert answer.error_code == ErrorCode.sasl_authentication_failed
            assert await peer.is_closed()

    async def test_another_request_within_it_closes_the_connection(self) -> None:
        async with login_server(self.SETTINGS) as login:
            peer = await login.connect()
            await peer.log_in()
            await peer.ask(handshake("SCRAM-SHA-256"))
            peer.send(api_versions())
            assert await peer.is_closed()

    async def test_a_session_without_an_end_has_none(self) -> None:
        async with login_server() as login:
            peer = await login.connect()
            assert (await peer.log_in()).lifetime_ms == 0
            login.clock.seconds += 1_000_000
            answer = read_handshake_answer(await peer.ask(handshake("SCRAM-SHA-256")))
            assert answer.error_code == ErrorCode.illegal_sasl_state
            assert await peer.serves()


async def test_many_clients_authenticate_at_once() -> None:
    async with login_server() as login:
        peers = [await login.connect() for _ in range(50)]
        answers = await asyncio.gather(*(peer.log_in() for peer in peers))
        assert all(answer.error_code == 0 for answer in answers)
