"""Tokens of an issuer that let nobody in, by OAUTHBEARER over TLS and over HTTPS."""

import time

import pytest

from protocol.errors import ErrorCode
from tests.security.login_agent import LoginAgent, source_of_its_own
from tests.support.auth.sasl_frames import AuthenticateAnswer
from tests.support.auth.wrong_tokens import WRONG_TOKENS
from tests.support.clients.login_client import LoginClient

FAILED = ErrorCode.sasl_authentication_failed
REJECTION = b'{"status":"invalid_token"}'
TOO_LONG = "a token of 17 KiB"

pytestmark = pytest.mark.xdist_group("login agent")


def token_of(logins: LoginAgent, kind: str) -> str:
    if kind == TOO_LONG:
        return logins.tokens.token("alice", padding="x" * 17 * 1024)
    return WRONG_TOKENS[kind](logins.tokens, int(time.time()))


def show(client: LoginClient, token: str, authorized: str = "") -> AuthenticateAnswer:
    """The first answer to a token."""
    assert client.shake_hands("OAUTHBEARER").error_code == 0
    return client.authenticate(f"n,{authorized},\x01auth=Bearer {token}\x01\x01".encode())


def test_a_good_token_lets_its_user_in(logins: LoginAgent) -> None:
    with logins.connect("SECURE") as client:
        assert show(client, logins.tokens.token("alice")).error_code == 0
        assert client.is_served
    assert logins.https_status(f"Bearer {logins.tokens.token('alice')}") == 200


@pytest.mark.parametrize("kind", [*WRONG_TOKENS, TOO_LONG])
def test_a_wrong_token(logins: LoginAgent, kind: str) -> None:
    token = token_of(logins, kind)
    with logins.connect("SECURE") as client:
        answer = show(client, token)
        if not answer.error_code:  # RFC 7628: the reason, then the client's ^A, then the failure
            assert answer.token == REJECTION
            answer = client.authenticate(b"\x01")
        assert answer.error_code == FAILED
        assert client.is_closed()
    assert logins.https_status(f"Bearer {token}") in (401, 431)


def test_a_request_behind_the_rejection_of_a_token(logins: LoginAgent) -> None:
    """The reason is no success: nothing but its acknowledgement may follow."""
    with logins.connect("SECURE") as client:
        assert show(client, token_of(logins, "expired")).token == REJECTION
        assert not client.is_served


def test_a_good_token_for_another_user(logins: LoginAgent) -> None:
    with logins.connect("SECURE") as client:
        answer = show(client, logins.tokens.token("bob"), "a=alice")
        if not answer.error_code:
            answer = client.authenticate(b"\x01")
        assert answer.error_code == FAILED


def test_no_token_where_it_is_not_enabled(logins: LoginAgent) -> None:
    with logins.connect("CLIENTS") as client:
        assert client.shake_hands("OAUTHBEARER").error_code == ErrorCode.unsupported_sasl_mechanism


def test_no_token_is_in_the_log(logins: LoginAgent) -> None:
    token = logins.tokens.token("alice")
    source = source_of_its_own()
    with logins.connect("SECURE", source=source) as client:
        assert show(client, token).error_code == 0
    signature = token.rpartition(".")[2]
    assert signature not in logins.audited(f'"{source}"') + logins.process.stderr
