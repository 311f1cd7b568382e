"""OAUTHBEARER on a connection: who gets in, until when, and that a rejected token learns nothing but that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from agent.config.oauth_settings import KeySource, OauthSettings
from agent.config.sasl_settings import SaslSettings
from agent.runtime.metrics import Metrics
from agent.security.oauth.issuer_keys import IssuerKeys
from tests.support.agent.ledger_parts import BEGAN_MS
from tests.support.auth.login_server import LISTENER, ExpiringClock, LoginServer, RawPeer, login_server
from tests.support.auth.sasl_frames import (
    AuthenticateAnswer,
    api_versions,
    authenticate,
    handshake,
    read_authenticate_answer,
)
from tests.support.auth.token_issuer import AUDIENCE, ISSUER, TokenKeys
from tests.support.auth.wrong_tokens import WRONG_TOKENS

VERSION = 2
REJECTION = b'{"status":"invalid_token"}'
NOW_S = BEGAN_MS // 1000
KEYS: Final = TokenKeys()


@asynccontextmanager
async def server(tmp_path: Path, *, reauth_ms: int = 0) -> AsyncIterator[LoginServer]:
    path = tmp_path / "keys"
    path.write_text(KEYS.key_set())
    source = KeySource(url=f"file://{path}")
    oauth = OauthSettings(keys=source, issuer=ISSUER, audiences=(AUDIENCE,), groups_claim="groups")
    settings = SaslSettings(mechanisms=("OAUTHBEARER",), oauth=oauth, reauth_ms={"OAUTHBEARER": reauth_ms})
    keys = IssuerKeys(source, clock=ExpiringClock(), metrics=Metrics())
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(keys.run())
        async with login_server(settings, issuer_keys=keys) as login:
            yield login
        reading.cancel()


async def audited(login: LoginServer, *names: str) -> list[tuple[object, ...]]:
    """These fields of all events of the audit log."""
    await login.audit_log.flush()
    return [tuple(line[name] for name in names) for line in login.audit_log.sink.lines]


def message(token: str, authorization_id: str = "") -> bytes:
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()


async def send(peer: RawPeer, token: bytes) -> AuthenticateAnswer:
    return read_authenticate_answer(await peer.ask(authenticate(token, VERSION)), VERSION)


async def log_in(server: LoginServer, token: str, authorization_id: str = "") -> tuple[RawPeer, AuthenticateAnswer]:
    """A new connection, and the answer to its token."""
    peer = await server.connect()
    await peer.ask(handshake("OAUTHBEARER"))
    return peer, await send(peer, message(token, authorization_id))


def token(subject: str = "alice", **claims: object) -> str:
    return KEYS.token(subject, now_s=NOW_S, **claims)


async def test_a_good_token_lets_its_user_in_until_it_expires(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        peer, answer = await log_in(login, token(exp=NOW_S + 60, groups=["team"]))
        assert (answer.error_code, answer.token, answer.lifetime_ms) == (0, b"", 60_000)
        assert await peer.serves()
        assert await audited(login, "principal", "groups", "mechanism", "decision") == [
            ("User:alice", ["team"], "OAUTHBEARER", "authenticated")
        ]
        login.clock.seconds += 61
        peer.send(api_versions())
        assert await peer.is_closed()


async def test_the_smaller_of_both_limits_ends_a_session(tmp_path: Path) -> None:
    async with server(tmp_path, reauth_ms=5_000) as login:
        assert (await log_in(login, token(exp=NOW_S + 60)))[1].lifetime_ms == 5_000
        assert (await log_in(login, token(exp=NOW_S + 4)))[1].lifetime_ms == 4_000


async def test_a_client_authenticates_again_with_its_next_token(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        peer, _ = await log_in(login, token(exp=NOW_S + 10))
        login.clock.seconds += 9
        await peer.ask(handshake("OAUTHBEARER"))
        answer = await send(peer, message(token(exp=NOW_S + 60, groups=["new"])))
        assert (answer.error_code, answer.lifetime_ms) == (0, 51_000)
        login.clock.seconds += 20
        assert await peer.serves()
        assert await audited(login, "groups") == [([],), (["new"],)]


async def test_a_client_does_not_become_another_user_meanwhile(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        peer, _ = await log_in(login, token())
        login.clock.seconds += 9
        await peer.ask(handshake("OAUTHBEARER"))
        answer = await send(peer, message(token("bob")))
        assert answer.error_code == 58
        assert await peer.is_closed()


@pytest.mark.parametrize("name", WRONG_TOKENS)
async def test_another_token_is_rejected_and_the_client_learns_nothing_else(tmp_path: Path, name: str) -> None:
    wrong = WRONG_TOKENS[name](KEYS, NOW_S)
    async with server(tmp_path) as login:
        peer, answer = await log_in(login, wrong)
        assert (answer.error_code, answer.token) == (0, REJECTION)
        answer = await send(peer, b"\x01")
        assert (answer.error_code, answer.message) == (58, REJECTION.decode())
        assert await peer.is_closed()
        assert login.count("penstock_authentication_failures_total", {"listener": LISTENER, "mechanism": "OAUTHBEARER"})
        ((decision, reason),) = await audited(login, "decision", "rule")
        assert decision == "rejected"
        assert str(reason).startswith("the token")


async def test_a_token_of_17_kib_closes_the_connection_after_58(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        peer, answer = await log_in(login, token(scope="a" * 17 * 1024))
        assert answer.error_code == 58
        assert await peer.is_closed()


async def test_a_client_may_name_the_tokens_user_and_no_other_to_act_for(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        assert (await log_in(login, token(), "alice"))[1].error_code == 0
        assert (await log_in(login, token(), "bob"))[1].error_code == 58


async def test_a_hundred_clients_log_in_at_once(tmp_path: Path) -> None:
    async with server(tmp_path) as login:
        found = await asyncio.gather(*(log_in(login, token(f"user-{number}")) for number in range(100)))
        assert {answer.error_code for _, answer in found} == {0}
