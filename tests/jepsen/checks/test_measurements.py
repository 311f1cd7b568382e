"""What is measured: records consumed again, and how far a consumer lags behind."""

from tests.jepsen.checks.history_fixtures import KEY, STEP_NS, Made, read, sent
from tests.jepsen.checks.measurements import Consumed, Lag, consumed_again, worst_lags
from tests.jepsen.graph.evidence import Evidence


def again(made: Made) -> list[Consumed]:
    return consumed_again(Evidence.of(made.history()))


def lags(made: Made) -> list[Lag]:
    return worst_lags(Evidence.of(made.history()))


class TestConsumedAgain:
    def test_a_subscribed_process_gets_a_record_twice(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").did(1, read((0, 1), (1, 2))).did(1, read((0, 1)))
        assert again(made) == [Consumed(1, KEY, 1, 2)]

    def test_two_processes_get_it_once_each(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").assigned(2, "a", f="subscribe")
        assert again(made.did(1, read((0, 1))).did(2, read((0, 1)))) == []

    def test_a_call_that_is_not_ok_does_not_consume(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").did(1, read((0, 1)), kind="fail").did(1, read((0, 1)))
        assert again(made) == []

    def test_who_assigns_partitions_may_read_as_often_as_it_likes(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").assigned(1, KEY)
        assert again(made.did(1, read((0, 1))).did(1, read((0, 1)))) == []

    def test_what_came_most_often_is_first(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").did(1, read((0, 1), (1, 2), (0, 1), (1, 2), (1, 2)))
        assert [each.count for each in again(made)] == [3, 2]


class TestLag:
    def test_a_record_is_there_when_a_poll_begins_that_does_not_return_it(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0)).did(1, read())
        assert lags(made) == [Lag(1, KEY, STEP_NS, 4 * STEP_NS)]

    def test_a_poll_that_returns_it_does_not_lag(self) -> None:
        assert lags(Made().assigned(1, KEY).did(0, sent(1, 0)).did(1, read((0, 1)))) == []

    def test_a_record_that_comes_while_the_poll_lasts_may_be_missing(self) -> None:
        assert lags(Made().assigned(1, KEY).begun(1, read()).did(0, sent(1, 0)).ended(1, read())) == []

    def test_the_first_record_that_is_missing_counts(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0)).did(0, sent(2, 4)).did(0, sent(3, 5)).did(1, read((0, 1)))
        assert [(lag.lag_ns, lag.time_ns) for lag in lags(made)] == [(3 * STEP_NS, 8 * STEP_NS)]

    def test_a_higher_offset_that_was_told_first_vouches_for_the_lower(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(2, 4)).did(0, sent(1, 0)).did(1, read())
        assert [lag.lag_ns for lag in lags(made)] == [3 * STEP_NS]

    def test_keys_that_are_not_assigned_do_not_lag(self) -> None:
        made = Made().assigned(1, "a-1").did(0, sent(1, 0)).did(1, read(key="a-1"))
        assert lags(made) == []

    def test_what_was_read_before_a_key_is_assigned_again_is_known(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0)).did(1, read((0, 1))).assigned(1, KEY, "a-1")
        assert lags(made.did(1, read())) == []

    def test_the_final_read_begins_again(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0)).did(1, read((0, 1))).assigned(1, KEY, final=True)
        assert [lag.lag_ns for lag in lags(made.did(1, read()))] == [5 * STEP_NS]

    def test_of_a_subscription_only_what_came_counts(self) -> None:
        made = Made().assigned(1, "a", f="subscribe").did(0, sent(1, 0)).did(1, read()).did(1, read((0, 1)))
        assert lags(made) == []
        assert [lag.lag_ns for lag in lags(made.did(0, sent(2, 1)).did(1, read()))] == [STEP_NS]

    def test_a_subscription_forgets_what_was_assigned(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0)).assigned(1, "a", f="subscribe")
        assert lags(made.did(1, read())) == []

    def test_a_send_that_nobody_knows_to_be_committed_is_not_there_for_certain(self) -> None:
        made = Made().assigned(1, KEY).did(0, sent(1, 0), kind="info").did(1, read())
        assert lags(made) == []

    def test_a_call_that_is_not_ok_has_no_lag(self) -> None:
        assert lags(Made().assigned(1, KEY).did(0, sent(1, 0)).did(1, read(), kind="info")) == []
