"""What producers sent through several agents is added up at each of them, once."""

import pytest

from agent.security.quotas.quota_windows import QuotaWindows
from agent.security.quotas.shared_use import SharedUse, use_key
from coordinator.commands.commands import QuotaUse
from coordinator.security.quota_rules import AppliedQuota
from protocol.types import SessionId
from tests.support.agent.ledger_parts import ManualClock

WINDOWS = QuotaWindows(11, 1.0)
ANN = AppliedQuota(100.0, "ann", "", (("user", "ann"),))
MINE, ANOTHERS = SessionId(1), SessionId(2)


def shared_use() -> tuple[SharedUse, ManualClock]:
    clock = ManualClock()
    return SharedUse(clock=clock, windows=WINDOWS), clock


def quota_of(user: str, client_id: str = "") -> AppliedQuota:
    return AppliedQuota(100.0, user, client_id, ())


def test_an_entry_tells_what_was_sent_since_the_last_one() -> None:
    use, _ = shared_use()
    use.sent(ANN, 40)
    use.sent(quota_of("bob"), 5)
    use.sent(ANN, 60)
    told = use.take(MINE)
    assert told == (QuotaUse(key=use_key(ANN), byte_count=100), QuotaUse(key=use_key(quota_of("bob")), byte_count=5))
    assert use.take(MINE) == ()


def test_others_add_it_up_and_the_agent_itself_does_not() -> None:
    (sender, _), (other, _) = shared_use(), shared_use()
    sender.sent(ANN, 1_000)
    told = sender.take(MINE)
    for _ in range(2):
        other.applied(MINE, told)
        sender.applied(MINE, told)
    assert other.rate_of(ANN).amount == 2_000
    assert sender.rate_of(ANN).amount == 0
    sender.applied(ANOTHERS, told)
    assert sender.rate_of(ANN).amount == 1_000


def test_entries_of_a_session_that_was_replaced_are_its_own() -> None:
    use, _ = shared_use()
    use.sent(ANN, 10)
    told = use.take(MINE)
    for session in range(10, 20):
        use.take(SessionId(session))
    use.applied(MINE, told)
    assert use.rate_of(ANN).amount == 0


def test_the_oldest_of_many_sessions_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.security.quotas.shared_use.QUOTA_OWN_SESSIONS_MAX", 2)
    use, _ = shared_use()
    for session in (MINE, SessionId(5), SessionId(6)):
        use.take(session)
    use.applied(MINE, (QuotaUse(key=use_key(ANN), byte_count=7),))
    assert use.rate_of(ANN).amount == 7


def test_what_no_window_covers_any_more_is_told_to_nobody() -> None:
    use, clock = shared_use()
    use.sent(ANN, 10)
    clock.seconds += 11
    assert use.take(MINE) != ()
    use.sent(ANN, 10)
    clock.seconds += 11.1
    use.sent(quota_of("bob"), 5)
    assert use.take(MINE) == (QuotaUse(key=use_key(quota_of("bob")), byte_count=5),)


def test_an_entry_tells_a_part_of_many_and_the_next_one_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.security.quotas.shared_use.QUOTA_USES_PER_COMMIT_MAX", 2)
    use, _ = shared_use()
    for user in ("a", "b", "c"):
        use.sent(quota_of(user), 1)
    keys = [use_key(quota_of(user)) for user in ("a", "b", "c")]
    assert [[row.key for row in use.take(MINE)] for _ in range(3)] == [keys[:2], keys[2:], []]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.security.quotas.shared_use.QUOTA_CLIENTS_COUNTED_MAX", 2)
    use, _ = shared_use()
    kept = use.rate_of(quota_of("kept"))
    kept.count(1.0, 0.0, WINDOWS)
    for user in ("a", "b", "c"):
        use.sent(quota_of(user), 1)
        use.rate_of(quota_of(user)).count(1.0, 0.0, WINDOWS)
    assert [row.byte_count for row in use.take(MINE)] == [1, 1]
    # One that a client of this agent has stays; the oldest of the others begins again.
    assert use.rate_of(quota_of("kept")) is kept
    assert use.rate_of(quota_of("a")).amount == 0


def test_a_key_is_alike_everywhere_and_tells_users_from_client_ids() -> None:
    assert use_key(quota_of("ann", "c")) == 4887152945981739501
    names = [("ann", "c"), ("ann", ""), ("", "annc"), ("annc", ""), ("an", "nc"), ("\udcff", "")]
    assert len({use_key(quota_of(*name)) for name in names}) == len(names)
    assert all(0 <= use_key(quota_of(*name)) < 1 << 63 for name in names)
