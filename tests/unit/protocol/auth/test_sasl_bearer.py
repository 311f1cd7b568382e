"""The server's side of OAUTHBEARER."""

import pytest

from protocol.auth.sasl_bearer import BearerExchange
from protocol.auth.sasl_exchange import Accepted, BearerCheck, Challenge, SaslIdentity, SaslRejection
from protocol.limits import BEARER_TOKEN_BYTES_MAX

ALICE = SaslIdentity(name="alice", groups=("team",), expires_ms=5_000)
MESSAGE = b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"


@pytest.mark.parametrize(
    "message",
    [
        MESSAGE,
        b"n,a=alice,\x01auth=bearer  abc.def.ghi\x01\x01",
        b"n,,\x01traceId=1\x01auth=Bearer abc.def.ghi\x01logicalCluster=x y\x01\x01",
    ],
)
def test_a_message_gives_the_token_to_check(message: bytes) -> None:
    exchange = BearerExchange()
    assert exchange.receive(message) == BearerCheck(token="abc.def.ghi")
    assert exchange.checked(ALICE) == Accepted(ALICE)


def test_a_check_shows_no_token() -> None:
    assert "abc" not in repr(BearerExchange().receive(MESSAGE))


@pytest.mark.parametrize("answer", [b"\x01", b"", MESSAGE])
def test_a_rejected_token_has_an_error_that_the_client_answers(answer: bytes) -> None:
    exchange = BearerExchange()
    exchange.receive(MESSAGE)
    assert exchange.checked(None) == Challenge(b'{"status":"invalid_token"}')
    step = exchange.receive(answer)
    assert isinstance(step, SaslRejection)
    assert step.message == '{"status":"invalid_token"}'


def test_why_a_token_is_rejected_is_known_to_the_log_alone() -> None:
    for given, logged in (("", "the token is not accepted"), ("the token has expired", "the token has expired")):
        exchange = BearerExchange()
        exchange.receive(MESSAGE)
        exchange.checked(None, given)
        step = exchange.receive(b"\x01")
        assert isinstance(step, SaslRejection)
        assert (step.reason, step.message) == (logged, '{"status":"invalid_token"}')


def test_a_client_that_acts_for_another_is_rejected() -> None:
    exchange = BearerExchange()
    exchange.receive(b"n,a=b=2Cb=3D,\x01auth=Bearer abc\x01\x01")
    assert isinstance(exchange.checked(ALICE), SaslRejection)


def test_an_escaped_name_is_compared_as_it_is_meant() -> None:
    exchange = BearerExchange()
    exchange.receive(b"n,a=b=2Cb=3D,\x01auth=Bearer abc\x01\x01")
    assert isinstance(exchange.checked(SaslIdentity(name="b,b=")), Accepted)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x011=2\x01auth=Bearer abc\x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * BEARER_TOKEN_BYTES_MAX + b"\x01\x01",
    ],
)
def test_a_message_of_another_form_is_rejected(message: bytes) -> None:
    assert isinstance(BearerExchange().receive(message), SaslRejection)
