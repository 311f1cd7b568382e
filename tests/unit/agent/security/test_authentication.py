"""The identity of one connection."""

from agent.security.authentication import ConnectionAuthenticator
from protocol.auth.principals import ANONYMOUS, Principal


def test_a_connection_without_sasl_is_anonymous_from_the_start() -> None:
    authenticator = ConnectionAuthenticator()
    assert authenticator.is_done
    assert authenticator.principal == ANONYMOUS
    assert authenticator.groups == ()
    assert authenticator.mechanism == ""


def test_a_certificate_gives_the_principal() -> None:
    assert ConnectionAuthenticator(Principal("User", "CN=alice")).principal == Principal("User", "CN=alice")
