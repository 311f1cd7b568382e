"""Clients that may not come in by SASL or by a password over HTTP: each gets its answer, or a closed connection."""

import ssl
import struct
import time
import warnings
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

import pytest

from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import MIB
from tests.security.login_agent import ADMIN_TOKEN, PASSWORD, SESSION_MS, LoginAgent
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import api_versions, authenticate, handshake, header, metadata
from tests.support.clients.login_client import LoginClient, plain_token

FAILED = ErrorCode.sasl_authentication_failed
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
UNKNOWN_MECHANISM = ErrorCode.unsupported_sasl_mechanism

pytestmark = pytest.mark.xdist_group("login agent")


def scram(user: str, mechanism: ScramMechanism, password: str = PASSWORD, gs2: str = "n,,") -> DrawnScramClient:
    return DrawnScramClient(mechanism=mechanism, user=user, password=password, gs2_header=gs2)


def by_plain(user: str, password: str = PASSWORD, authorized: str = "") -> Callable[[LoginClient], str]:
    """A login by PLAIN, which returns the message of its answer."""

    def log_in(client: LoginClient) -> str:
        assert client.shake_hands("PLAIN").error_code == 0
        answer = client.authenticate(plain_token(user, password, authorized))
        assert answer.error_code == FAILED
        return answer.message or ""

    return log_in


def by_scram(made: DrawnScramClient) -> Callable[[LoginClient], str]:
    """A login by SCRAM, which returns the message of its last answer."""

    def log_in(client: LoginClient) -> str:
        answer = client.log_in_by_scram(made)
        assert answer.error_code == FAILED
        return answer.message or ""

    return log_in


def test_the_users_with_their_passwords_are_in(logins: LoginAgent) -> None:
    for user, mechanism in (("alice", SHA_256), ("bob", SHA_512)):
        with logins.connect() as client:
            assert client.log_in_by_scram(scram(user, mechanism)).error_code == 0
            assert client.is_served
        with logins.connect() as client:
            assert client.log_in(user, PASSWORD).error_code == 0
        assert logins.https_status(basic(user, PASSWORD)) == 200


REJECTED = {
    "PLAIN, wrong password": by_plain("alice", "other"),
    "PLAIN, unknown user": by_plain("carol"),
    "PLAIN, empty password": by_plain("alice", ""),
    "PLAIN, another authorization id": by_plain("alice", PASSWORD, "bob"),
    "SCRAM-SHA-256, wrong password": by_scram(scram("alice", SHA_256, "other")),
    "SCRAM-SHA-512, wrong password": by_scram(scram("bob", SHA_512, "other")),
    "SCRAM-SHA-256, unknown user": by_scram(scram("carol", SHA_256)),
    "SCRAM-SHA-512, unknown user": by_scram(scram("carol", SHA_512)),
    "SCRAM-SHA-512, user of SCRAM-SHA-256": by_scram(scram("alice", SHA_512)),
    "SCRAM-SHA-256, user of SCRAM-SHA-512": by_scram(scram("bob", SHA_256)),
    "SCRAM, channel binding": by_scram(scram("alice", SHA_256, gs2="p=tls-unique,,")),
    "SCRAM, another authorization id": by_scram(scram("alice", SHA_256, gs2="n,a=bob,")),
}


@pytest.mark.parametrize("log_in", REJECTED.values(), ids=REJECTED)
def test_a_login_that_fails(logins: LoginAgent, log_in: Callable[[LoginClient], str]) -> None:
    with logins.connect() as client:
        log_in(client)
        assert client.is_closed()


@pytest.mark.parametrize("prefix", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_unknown_user_has_the_answer_of_a_known_one(logins: LoginAgent, prefix: str) -> None:
    messages = set[str]()
    for name, log_in in REJECTED.items():
        if name in (f"{prefix}, wrong password", f"{prefix}, unknown user"):
            with logins.connect() as client:
                messages.add(log_in(client))
    assert len(messages) == 1


def test_a_mechanism_that_is_not_enabled(logins: LoginAgent) -> None:
    for listener, mechanism, enabled in [
        ("SCRAMONLY", "PLAIN", ("SCRAM-SHA-512",)),
        ("SCRAMONLY", "SCRAM-SHA-256", ("SCRAM-SHA-512",)),
        ("CLIENTS", "GSSAPI", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        ("CLIENTS", "OAUTHBEARER", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    ]:
        with logins.connect(listener) as client:
            answer = client.shake_hands(mechanism)
            assert (answer.error_code, answer.mechanisms) == (UNKNOWN_MECHANISM, enabled)
            assert client.is_closed()


def test_a_last_message_of_scram_counts_once(logins: LoginAgent) -> None:
    made = scram("alice", SHA_256)
    with logins.connect() as client:
        client.shake_hands("SCRAM-SHA-256")
        recorded = made.final(client.authenticate(made.first()).token)
        assert client.authenticate(recorded).error_code == 0
    with logins.connect() as replayed:
        replayed.shake_hands("SCRAM-SHA-256")
        assert replayed.authenticate(made.first()).error_code == 0
        assert replayed.authenticate(recorded).error_code == FAILED
        assert replayed.is_closed()


OUT_OF_TURN = {
    "SaslAuthenticate first": [authenticate(plain_token("alice", PASSWORD))],
    "Metadata before SASL": [metadata()],
    "Metadata after ApiVersions": [api_versions(), metadata()],
    "Metadata after SaslHandshake": [handshake("PLAIN"), metadata()],
    "ApiVersions twice": [api_versions(), api_versions()],
    "SaslHandshake twice": [handshake("PLAIN"), handshake("PLAIN")],
    "ApiVersions after SaslHandshake": [handshake("PLAIN"), api_versions()],
    "an API that there is not": [header(999, 0)],
    "noise": [b"\xff" * 40],
    "HTTP": [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"],
}


@pytest.mark.parametrize("listener", ["CLIENTS", "SECURE"])
@pytest.mark.parametrize("frames", OUT_OF_TURN.values(), ids=OUT_OF_TURN)
def test_a_request_out_of_turn_closes_the_connection(
    logins: LoginAgent, frames: list[bytes | memoryview], listener: str
) -> None:
    with logins.connect(listener) as client:
        for frame in frames[:-1]:
            client.exchange(frame)
        client.send(frames[-1])
        assert client.is_closed()


def test_a_frame_of_100_mib_is_not_received(logins: LoginAgent) -> None:
    with logins.connect() as client:
        with suppress(ConnectionError):
            client.connection.sendall(struct.pack(">i", 100 * MIB) + bytes(64 * 1024))
        assert client.is_closed()


def test_sasl_where_the_listener_has_none(logins: LoginAgent) -> None:
    with logins.connect("OPEN") as client:
        assert client.shake_hands("PLAIN").error_code == ErrorCode.illegal_sasl_state


def in_for_a_while(logins: LoginAgent) -> LoginClient:
    """A connection of Alice whose session has an end."""
    client = logins.connect("SHORT")
    answer = client.log_in_by_scram(scram("alice", SHA_256))
    assert answer.error_code == 0
    assert 0 < answer.lifetime_ms <= SESSION_MS
    return client


def test_authenticating_again_as_another_user(logins: LoginAgent) -> None:
    with in_for_a_while(logins) as client:
        assert client.shake_hands("SCRAM-SHA-256").error_code == 0
        answer = client.log_in_by_scram_started(scram("bob", SHA_256))
        assert answer.error_code == FAILED
        assert client.is_closed()


def test_authenticating_again_by_another_mechanism(logins: LoginAgent) -> None:
    with in_for_a_while(logins) as client:
        assert client.shake_hands("PLAIN").error_code == 0
        answer = client.authenticate(plain_token("alice", PASSWORD))
        assert answer.error_code == FAILED
        assert client.is_closed()


def test_authenticating_again_where_the_session_has_no_end(logins: LoginAgent) -> None:
    with logins.connect() as client:
        assert client.log_in("alice", PASSWORD).error_code == 0
        assert client.shake_hands("PLAIN").error_code == ErrorCode.illegal_sasl_state


def test_a_request_behind_the_end_of_a_session(logins: LoginAgent) -> None:
    with in_for_a_while(logins) as client:
        assert client.is_served
        ends = time.monotonic() + SESSION_MS / 1000
        while client.is_served:
            assert time.monotonic() < ends + 1


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_logins_over_http_that_fail(logins: LoginAgent) -> None:
    assert logins.https_status(f"Bearer {ADMIN_TOKEN}") == 200
    for user, password in (("alice", "other"), ("carol", PASSWORD), ("alice", ""), ("", PASSWORD), ("ANONYMOUS", "x")):
        assert logins.https_status(basic(user, password)) == 401, user
    for token in (ADMIN_TOKEN + "x", ADMIN_TOKEN[:-1], ADMIN_TOKEN.upper(), "x" * 20_000):
        assert logins.https_status(f"Bearer {token}") in (401, 431), token


def test_a_failure_shows_neither_password_nor_token(logins: LoginAgent) -> None:
    assert logins.https_status(basic("carol", PASSWORD)) == 401
    assert logins.https_status(f"Bearer {ADMIN_TOKEN}x") == 401
    texts = logins.audited('"rejected"') + logins.process.stderr + logins.process.stdout
    assert PASSWORD not in texts
    assert ADMIN_TOKEN not in texts


def test_old_tls_and_none(logins: LoginAgent) -> None:
    context = logins.certificates.context(None)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):  # Python deprecates what is tried here
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError), logins.connect_by("SECURE", context):
        pytest.fail("TLS 1.1 was accepted")
    with logins.connect_by("SECURE", None) as plaintext:
        plaintext.send(api_versions())
        assert plaintext.is_closed()
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        logins.connect_by("CLIENTS", logins.certificates.context(None)),
    ):
        pytest.fail("a listener without TLS spoke TLS")
