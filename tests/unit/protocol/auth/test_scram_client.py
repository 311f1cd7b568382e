"""The client's side of SCRAM, by RFC 5802's and RFC 7677's examples, and against the server's side."""

import pytest

from protocol.auth.sasl_exchange import Accepted, Challenge, SaslIdentity, SaslRejection
from protocol.auth.scram import ScramAccount, ScramExchange
from protocol.auth.scram_client import ScramClient, ServerRejected
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password

SHA_256 = ScramMechanism.SCRAM_SHA_256
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(user: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, user=user, password=password, nonce=NONCE)


def test_the_messages_are_those_of_rfc_7677() -> None:
    exchange = client()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.final(SERVER_FIRST) == FINAL
    exchange.check(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", ["alice", "a=b,c", "ümläut"])
@pytest.mark.parametrize("password", ["pencil", "other"])
def test_the_servers_side_takes_the_right_password_alone(mechanism: ScramMechanism, user: str, password: str) -> None:
    salted = salt_password("pencil", salt=b"salt", iterations=4096, mechanism=mechanism)
    credential = credential_of(salted, salt=b"salt", iterations=4096, mechanism=mechanism)

    def find_account(name: str, is_token: bool) -> ScramAccount:
        assert (name, is_token) == (user, False)
        return ScramAccount(credential=credential, identity=SaslIdentity(name=name))

    server = ScramExchange(mechanism, find_account=find_account, server_nonce="server")
    exchange = ScramClient(mechanism, user=user, password=password, nonce="client")
    challenge = server.receive(exchange.first())
    assert isinstance(challenge, Challenge)
    outcome = server.receive(exchange.final(challenge.token))
    if password == "pencil":
        assert isinstance(outcome, Accepted)
        exchange.check(outcome.token)
    else:
        assert isinstance(outcome, SaslRejection)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (b"\xff", "UTF-8"),
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "malformed"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "malformed"),
        (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many".encode(), "malformed"),
        (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999".encode(), "iterations"),
        (f"r={NONCE}x,s=!,i=4096".encode(), "base64"),
    ],
)
def test_a_first_message_that_no_server_sends_is_rejected(message: bytes, reason: str) -> None:
    with pytest.raises(ServerRejected, match=reason):
        client().final(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [(b"v=AAAA", "does not prove"), (b"", "does not prove"), (b"e=other-error", "other-error"), (b"v=!", "base64")],
)
def test_a_server_that_does_not_know_the_user_is_rejected(message: bytes, reason: str) -> None:
    exchange = client()
    exchange.final(SERVER_FIRST)
    with pytest.raises(ServerRejected, match=reason):
        exchange.check(message)
