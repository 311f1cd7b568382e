"""What the garbage collector may delete (safety rule S6)."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from protocol.types import Milliseconds, ObjectNumber, Position, SessionId, TopicId
from storage.gc_plan import (
    UNTIMED,
    EntryFate,
    ListedVerdict,
    ReleasedPlan,
    SessionsPlan,
    judge_listed,
    may_discard,
    plan_released,
    plan_sessions,
)
from storage.refs import intake_key, metadata_copy_key, parquet_key, version_hint_key

DAY_MS = 24 * 60 * 60 * 1000
GRACE_MS = 500
LIVE, ENDED, ENDED_LATER, FORGOTTEN, YOUNGER = map(SessionId, (10, 5, 6, 3, 200))
POSITION = Position(100)


def intake(session: SessionId, number: int = 0) -> str:
    return intake_key(session, ObjectNumber(number))


def parquet(session: SessionId) -> str:
    return parquet_key("orders", TopicId(bytes(16)), session, ObjectNumber(0))


def judge(*keys: str, referenced: tuple[str, ...] = (), released: tuple[str, ...] = ()) -> ListedVerdict:
    return judge_listed(
        keys,
        position=POSITION,
        referenced=set(referenced),
        released=set(released),
        sessions_live={LIVE},
        sessions_ended={ENDED: Milliseconds(1000), ENDED_LATER: Milliseconds(1001)},
        topics={TopicId(bytes(16))},
        time_ms=Milliseconds(1000 + GRACE_MS),
        grace_ms=GRACE_MS,
    )


def deletable(
    released: Mapping[str, Milliseconds], time_ms: int, grace_ms: int, count_max: int = 10
) -> tuple[str, ...]:
    """Where the newest snapshot covers everything but the present."""
    time = Milliseconds(time_ms)
    return plan_released(released, time_ms=time, covered_ms=time, grace_ms=grace_ms, count_max=count_max).deletable


class TestReleased:
    def test_s6_nothing_is_deleted_before_its_grace_has_passed(self) -> None:
        released = {"a": Milliseconds(1000), "b": Milliseconds(1001)}
        assert deletable(released, 1499, 500) == ()
        assert deletable(released, 1500, 500) == ("a",)
        assert deletable(released, 1501, 500) == ("a", "b")

    def test_s2_the_grace_of_what_was_released_while_nobody_knew_the_time_has_not_begun(self) -> None:
        assert deletable({"a": Milliseconds(UNTIMED), "b": Milliseconds(1)}, 5_000, 500) == ("b",)

    def test_the_longest_released_go_first_and_no_more_than_asked(self) -> None:
        released = {"c": Milliseconds(2), "b": Milliseconds(1), "a": Milliseconds(2)}
        assert deletable(released, 100, 0, count_max=2) == ("b", "a")

    def test_what_the_store_did_not_delete_comes_last_and_waits_while_it_is_postponed(self) -> None:
        released = {key: Milliseconds(number) for number, key in enumerate("dcba", 1)}
        time = Milliseconds(100)
        plans = [
            plan_released(
                released,
                time_ms=time,
                covered_ms=time,
                grace_ms=0,
                count_max=count_max,
                failed={"d", "c"},
                postponed=postponed,
            ).deletable
            for count_max, postponed in ((10, set[str]()), (2, set[str]()), (10, {"d"}), (10, {"d", "c", "b", "a"}))
        ]
        assert plans == [("b", "a", "d", "c"), ("b", "a"), ("b", "a", "c"), ()]

    def test_a_time_that_the_state_has_not_reached_releases_nothing(self) -> None:
        assert deletable({"a": Milliseconds(50)}, 0, 0) == ()

    def test_s9_what_the_newest_snapshot_may_still_refer_to_stays_and_a_snapshot_is_wanted(self) -> None:
        released = {"before": Milliseconds(9), "perhaps": Milliseconds(10), "after": Milliseconds(11)}
        plan = plan_released(released, time_ms=Milliseconds(50), covered_ms=Milliseconds(10), grace_ms=0, count_max=10)
        assert plan == ReleasedPlan(deletable=("before",), needs_snapshot=True)

    def test_no_snapshot_is_wanted_for_what_is_not_due_or_would_not_be_covered(self) -> None:
        for released_ms, grace_ms in ((20, 40), (50, 0)):
            released = {"a": Milliseconds(released_ms)}
            plan = plan_released(
                released, time_ms=Milliseconds(50), covered_ms=Milliseconds(10), grace_ms=grace_ms, count_max=10
            )
            assert plan == ReleasedPlan(deletable=(), needs_snapshot=False)


class TestListed:
    def test_s6_what_an_ended_session_left_uncommitted_goes(self) -> None:
        assert judge(intake(ENDED), parquet(ENDED)) == ListedVerdict(
            deletable=(intake(ENDED), parquet(ENDED)), waiting=(), unknown=()
        )

    def test_s6_each_session_has_a_grace_of_its_own(self) -> None:
        assert judge(intake(ENDED), intake(ENDED_LATER)) == ListedVerdict(
            deletable=(intake(ENDED),), waiting=(intake(ENDED_LATER),), unknown=()
        )

    def test_s6_what_a_live_session_wrote_stays(self) -> None:
        assert judge(intake(LIVE), parquet(LIVE)) == ListedVerdict(deletable=(), waiting=(), unknown=())

    def test_s6_what_the_state_refers_to_stays(self) -> None:
        assert judge(intake(ENDED), referenced=(intake(ENDED),)) == ListedVerdict(deletable=(), waiting=(), unknown=())

    def test_s6_what_was_released_waits_for_its_grace(self) -> None:
        assert judge(intake(ENDED), released=(intake(ENDED),)) == ListedVerdict(deletable=(), waiting=(), unknown=())

    def test_a_session_younger_than_the_state_may_still_commit(self) -> None:
        assert judge(intake(YOUNGER)) == ListedVerdict(deletable=(), waiting=(), unknown=())

    def test_what_belongs_to_no_known_session_is_reported(self) -> None:
        assert judge(intake(FORGOTTEN)) == ListedVerdict(deletable=(), waiting=(), unknown=(intake(FORGOTTEN),))

    def test_what_has_no_known_shape_is_reported(self) -> None:
        assert judge("intake/readme.txt", "holiday.jpg") == ListedVerdict(
            deletable=(), waiting=(), unknown=("intake/readme.txt", "holiday.jpg")
        )


def sessions_plan(ended: Mapping[SessionId, Milliseconds], time_ms: int, *listed: SessionId) -> SessionsPlan:
    return plan_sessions(
        ended, time_ms=Milliseconds(time_ms), grace_ms=GRACE_MS, already_listed=set(listed), again_after_ms=DAY_MS
    )


class TestSessions:
    ENDED_AT = MappingProxyType({ENDED: Milliseconds(1000)})

    def test_an_ended_session_is_looked_for_after_the_grace(self) -> None:
        assert sessions_plan(self.ENDED_AT, 1000 + GRACE_MS - 1) == SessionsPlan(first=(), last=())
        assert sessions_plan(self.ENDED_AT, 1000 + GRACE_MS) == SessionsPlan(first=(ENDED,), last=())

    def test_it_is_left_alone_until_a_day_has_passed(self) -> None:
        assert sessions_plan(self.ENDED_AT, 1000 + GRACE_MS + DAY_MS - 1, ENDED) == SessionsPlan(first=(), last=())

    def test_s6_after_a_day_it_is_looked_for_once_more(self) -> None:
        for listed in ((), (ENDED,)):
            plan = sessions_plan(self.ENDED_AT, 1000 + GRACE_MS + DAY_MS, *listed)
            assert plan == SessionsPlan(first=(), last=(ENDED,))

    def test_s6_a_session_is_not_looked_for_a_last_time_while_something_of_it_could_not_be_deleted(self) -> None:
        late_ms = 1000 + GRACE_MS + DAY_MS
        kept = plan_sessions(
            self.ENDED_AT, time_ms=Milliseconds(late_ms), grace_ms=GRACE_MS, already_listed={ENDED}, kept={ENDED}
        )
        assert kept == SessionsPlan(first=(), last=())
        assert sessions_plan(self.ENDED_AT, late_ms, ENDED) == SessionsPlan(first=(), last=(ENDED,))

    def test_sessions_come_in_order(self) -> None:
        ended = {SessionId(9): Milliseconds(0), SessionId(4): Milliseconds(0), SessionId(6): Milliseconds(50)}
        assert sessions_plan(ended, GRACE_MS + DAY_MS) == SessionsPlan(
            first=(SessionId(6),), last=(SessionId(4), SessionId(9))
        )


def test_copies_of_a_tables_metadata_stay_with_their_topic_and_go_without_it() -> None:
    of_topic = (metadata_copy_key("orders", TopicId(bytes(16)), 3), version_hint_key("orders", TopicId(bytes(16))))
    of_none = (metadata_copy_key("orders", TopicId(bytes([1] * 16)), 3),)
    assert judge(*of_topic, *of_none) == ListedVerdict(deletable=of_none, waiting=(), unknown=())
    assert judge(*of_none, released=of_none) == ListedVerdict(deletable=(), waiting=(), unknown=())


@pytest.mark.parametrize(
    ("fate", "is_discarded"),
    [(EntryFate.UNPROPOSED, True), (EntryFate.REJECTED, True), (EntryFate.UNKNOWN, False), (EntryFate.APPLIED, False)],
)
def test_s6_a_live_session_discards_what_no_entry_will_bring_in(fate: EntryFate, *, is_discarded: bool) -> None:
    assert may_discard(fate, is_session_confirmed=True) is is_discarded
    assert may_discard(fate, is_session_confirmed=False) is False, "a recovery may take its objects (S9)"
