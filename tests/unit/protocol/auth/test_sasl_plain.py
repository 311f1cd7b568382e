"""The server's side of PLAIN."""

import pytest

from protocol.auth.sasl_exchange import Accepted, PasswordCheck, SaslIdentity, SaslRejection
from protocol.auth.sasl_plain import PlainExchange
from protocol.auth.scram import OTHER_AUTHORIZATION_ID
from protocol.limits import SASL_NAME_CHARS_MAX

ALICE = SaslIdentity(name="alice")


def test_a_message_gives_the_password_to_check() -> None:
    exchange = PlainExchange()
    assert exchange.receive(b"\0alice\0wonder land\xc3\xbc") == PasswordCheck(
        user="alice", password="wonder land\u00fc"
    )
    assert exchange.checked(ALICE) == Accepted(ALICE)


def test_a_check_shows_no_password() -> None:
    assert "secret" not in repr(PlainExchange().receive(b"\0alice\0secret"))


def test_a_client_may_act_for_itself() -> None:
    exchange = PlainExchange()
    exchange.receive(b"alice\0alice\0w")
    assert exchange.checked(ALICE) == Accepted(ALICE)


def test_a_client_that_acts_for_another_is_rejected_behind_the_password() -> None:
    exchange = PlainExchange()
    assert isinstance(exchange.receive(b"bob\0alice\0w"), PasswordCheck)
    step = exchange.checked(ALICE)
    assert isinstance(step, SaslRejection)
    assert step.message == OTHER_AUTHORIZATION_ID


def test_unknown_users_and_wrong_passwords_have_one_answer() -> None:
    exchange = PlainExchange()
    exchange.receive(b"\0alice\0w")
    step = exchange.checked(None)
    assert isinstance(step, SaslRejection)
    assert step.message == "Authentication failed: Invalid username or password"
    assert step.user == "alice"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0w", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0w\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0w", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0" + b"a" * (SASL_NAME_CHARS_MAX + 1) + b"\0w", None),
        (b"\0\xff\0w", None),
    ],
)
def test_a_message_of_another_form_is_rejected(message: bytes, text: str | None) -> None:
    step = PlainExchange().receive(message)
    assert isinstance(step, SaslRejection)
    assert step.message == text
