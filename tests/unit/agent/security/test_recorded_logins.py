"""A client's log-in over HTTP is recorded once a minute."""

import pytest

from agent.security import recorded_logins
from agent.security.recorded_logins import RecordedLogins
from protocol.auth.principals import Principal
from protocol.limits import HTTP_BEARER_SECONDS_REMEMBERED

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


def test_a_client_is_due_once_in_a_while() -> None:
    logins = RecordedLogins()
    asked = [logins.is_due(ALICE, "Bearer", "10.0.0.7", now) for now in (0, 1, HTTP_BEARER_SECONDS_REMEMBERED)]
    assert asked == [True, False, True]


def test_another_principal_mechanism_or_address_is_another_client() -> None:
    logins = RecordedLogins()
    clients = [(ALICE, "Bearer", "a"), (BOB, "Bearer", "a"), (ALICE, "certificate", "a"), (ALICE, "Bearer", "b")]
    assert [logins.is_due(*client, 0) for client in clients] == [True] * 4


def test_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_logins, "HTTP_BEARERS_REMEMBERED_MAX", 1)
    logins = RecordedLogins()
    assert [logins.is_due(each, "Bearer", "a", 0) for each in (ALICE, BOB, BOB, ALICE)] == [True, True, False, True]
