"""What the cleaner may delete (safety rule S6)."""

from protocol.types import Milliseconds, ObjectNumber, Position, SessionId, TopicId
from storage.gc_plan import ListedVerdict, SessionsPlan, judge_listed, plan_sessions, released_due
from storage.refs import intake_key, parquet_key

DAY_MS = 24 * 60 * 60 * 1000
LIVE, ENDED, FORGOTTEN, YOUNGER = SessionId(10), SessionId(5), SessionId(3), SessionId(200)
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
        sessions_ended={ENDED},
    )


class TestReleased:
    def test_s6_nothing_is_deleted_before_its_grace_has_passed(self) -> None:
        released = {"a": Milliseconds(1000), "b": Milliseconds(1001)}
        assert released_due(released, time_ms=Milliseconds(1499), grace_ms=500, count_max=10) == ()
        assert released_due(released, time_ms=Milliseconds(1500), grace_ms=500, count_max=10) == ("a",)
        assert released_due(released, time_ms=Milliseconds(1501), grace_ms=500, count_max=10) == ("a", "b")

    def test_the_longest_released_go_first_and_no_more_than_asked(self) -> None:
        released = {"c": Milliseconds(2), "b": Milliseconds(1), "a": Milliseconds(2)}
        assert released_due(released, time_ms=Milliseconds(100), grace_ms=0, count_max=2) == ("b", "a")

    def test_a_time_that_the_state_has_not_reached_releases_nothing(self) -> None:
        assert released_due({"a": Milliseconds(50)}, time_ms=Milliseconds(0), grace_ms=0, count_max=10) == ()


class TestListed:
    def test_s6_what_an_ended_session_left_uncommitted_goes(self) -> None:
        assert judge(intake(ENDED), parquet(ENDED)) == ListedVerdict(
            deletable=(intake(ENDED), parquet(ENDED)), unknown=()
        )

    def test_s6_what_a_live_session_wrote_stays(self) -> None:
        assert judge(intake(LIVE), parquet(LIVE)) == ListedVerdict(deletable=(), unknown=())

    def test_s6_what_the_state_refers_to_stays(self) -> None:
        assert judge(intake(ENDED), referenced=(intake(ENDED),)) == ListedVerdict(deletable=(), unknown=())

    def test_s6_what_was_released_waits_for_its_grace(self) -> None:
        assert judge(intake(ENDED), released=(intake(ENDED),)) == ListedVerdict(deletable=(), unknown=())

    def test_a_session_younger_than_the_state_may_still_commit(self) -> None:
        assert judge(intake(YOUNGER)) == ListedVerdict(deletable=(), unknown=())

    def test_what_belongs_to_no_known_session_is_reported(self) -> None:
        assert judge(intake(FORGOTTEN)) == ListedVerdict(deletable=(), unknown=(intake(FORGOTTEN),))

    def test_what_has_no_known_shape_is_reported(self) -> None:
        assert judge("intake/readme.txt", "holiday.jpg") == ListedVerdict(
            deletable=(), unknown=("intake/readme.txt", "holiday.jpg")
        )


class TestSessions:
    def test_an_ended_session_is_looked_for_at_once(self) -> None:
        assert plan_sessions(
            {ENDED: Milliseconds(1000)}, time_ms=Milliseconds(1000), already_listed=set()
        ) == SessionsPlan(first=(ENDED,), last=())

    def test_it_is_left_alone_until_a_day_has_passed(self) -> None:
        assert plan_sessions(
            {ENDED: Milliseconds(1000)}, time_ms=Milliseconds(1000 + DAY_MS - 1), already_listed={ENDED}
        ) == SessionsPlan(first=(), last=())

    def test_s6_after_a_day_it_is_looked_for_once_more(self) -> None:
        for already_listed in (set[SessionId](), {ENDED}):
            assert plan_sessions(
                {ENDED: Milliseconds(1000)}, time_ms=Milliseconds(1000 + DAY_MS), already_listed=already_listed
            ) == SessionsPlan(first=(), last=(ENDED,))

    def test_sessions_come_in_order(self) -> None:
        ended = {SessionId(9): Milliseconds(0), SessionId(4): Milliseconds(0), SessionId(6): Milliseconds(50)}
        assert plan_sessions(ended, time_ms=Milliseconds(60), already_listed=set(), again_after_ms=60) == SessionsPlan(
            first=(SessionId(6),), last=(SessionId(4), SessionId(9))
        )
