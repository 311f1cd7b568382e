"""The sessions of a ledger that one process holds."""

import pytest

from coordinator.ledger.append_rules import NewestGroup
from coordinator.ledger.live_sessions import LiveSessions
from coordinator.ledger.port import Fenced, LedgerEntry, SessionHeld
from protocol.types import Position, SessionId

ONE, TWO = SessionId(1), SessionId(2)


def test_a_name_has_one_session_until_that_is_closed() -> None:
    sessions = LiveSessions()
    sessions.check_free("a")
    sessions.add("a", ONE)
    with pytest.raises(SessionHeld, match="session 1 lives under the name 'a'") as held:
        sessions.check_free("a")
    assert held.value.session == ONE
    sessions.check_free("b")
    sessions.close(ONE)
    sessions.check_free("a")
    sessions.close(ONE)


def test_a_session_that_is_over_is_fenced_and_forgets_what_it_appended() -> None:
    sessions = LiveSessions()
    sessions.add("a", ONE)
    sessions.newest[ONE] = NewestGroup(position=Position(3), entries=(LedgerEntry(number=0, payload=b"x"),))
    sessions.check(ONE)
    assert not sessions.is_ended("a", ONE)
    sessions.close(ONE)
    with pytest.raises(Fenced):
        sessions.check(ONE)
    assert sessions.is_ended("a", ONE)
    assert sessions.newest == {}


def test_a_session_is_revoked_under_its_own_name_alone() -> None:
    sessions = LiveSessions()
    sessions.add("a", ONE)
    sessions.add("b", TWO)
    sessions.revoke("a", TWO)
    sessions.revoke("c", ONE)
    assert sessions.names() == ["a", "b"]
    sessions.revoke("a", ONE)
    assert sessions.names() == ["b"]


def test_agents_that_run_are_named() -> None:
    sessions = LiveSessions()
    sessions.check_none()
    sessions.add("b", TWO)
    sessions.add("a", ONE)
    with pytest.raises(SessionHeld, match="\\['a', 'b'\\]"):
        sessions.check_none()
