"""The verdict: a log that is right is found right, one that is wrong in one way is found wrong in that way."""

from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.jepsen.checks.anomaly import MEANINGS, Kind
from tests.jepsen.checks.checker import INTERLEAVED, REBALANCED, SHOWN_MAX, Options, check
from tests.jepsen.checks.history_fixtures import Made, read, sent
from tests.jepsen.checks.simulated_log import Fault, SimulatedLog

STEPS = 150

OUTCOMES: dict[Fault, frozenset[Kind]] = {
    Fault.DROP: frozenset({"lost-write", "unseen"}),
    Fault.SHOW_ABORTED: frozenset({"G1a"}),
    Fault.TEAR: frozenset({"torn-transaction", "lost-write", "unseen"}),
    Fault.DUPLICATE: frozenset({"duplicate"}),
    Fault.WRONG_OFFSET: frozenset({"inconsistent-offsets"}),
    Fault.SHOW_OPEN: frozenset({"precommitted-read"}),
    Fault.SKIP: frozenset({"int-poll-skip"}),
    Fault.REPEAT: frozenset({"int-nonmonotonic-poll", "nonmonotonic-poll"}),
    Fault.SWAP: frozenset({"inconsistent-offsets", "int-nonmonotonic-send"}),
    Fault.INVENT: frozenset({"phantom"}),
}
"""By fault the kinds of which at least one is found."""

INTERLEAVING = SimulatedLog(7).run(400)


@given(st.integers(0, 2**32))
def test_a_log_that_is_right_has_interleaved_writes_at_most(seed: int) -> None:
    verdict = check(SimulatedLog(seed).run(STEPS), Options())
    assert verdict.errors == []
    assert set(verdict.found) <= {"int-send-skip", *INTERLEAVED}


@given(st.integers(0, 2**32))
def test_a_log_that_places_records_at_commit_has_not_even_these(seed: int) -> None:
    verdict = check(SimulatedLog(seed, commit_placement=True).run(STEPS), Options(commit_placement=True))
    assert dict(verdict.found) == {}


@pytest.mark.parametrize("fault", Fault)
@given(seed=st.integers(0, 2**32))
def test_each_fault_of_a_log_is_found(fault: Fault, seed: int) -> None:
    log = SimulatedLog(seed, fault=fault)
    history = log.run(STEPS)
    assume(log.is_fault_done)
    assert OUTCOMES[fault].intersection(check(history, Options()).errors)


def test_interleaved_writes_are_reported_and_allowed() -> None:
    verdict = check(INTERLEAVING, Options())
    assert {"int-send-skip", "G0"} <= set(verdict.found)
    assert verdict.is_valid


def test_interleaved_writes_are_errors_where_records_are_placed_at_commit() -> None:
    verdict = check(INTERLEAVING, Options(commit_placement=True))
    assert "G0" in verdict.errors
    assert not verdict.is_valid


def test_interleaved_writes_are_not_looked_for_without_their_order() -> None:
    assert INTERLEAVED.isdisjoint(check(INTERLEAVING, Options(ww_deps=False)).found)


def test_consumers_that_subscribe_may_skip_and_go_back_between_transactions() -> None:
    made = Made().did(0, sent(1, 0)).did(0, sent(2, 1)).did(0, sent(3, 2))
    made.did(1, read((0, 1))).did(1, read((2, 3))).did(1, read((1, 2)))
    assert check(made.history(), Options()).errors == ["poll-skip", "nonmonotonic-poll"]
    subscribed = check(made.history(), Options(sub_via=frozenset({"assign", "subscribe"})))
    assert subscribed.is_valid
    assert set(subscribed.found) == REBALANCED


@pytest.mark.parametrize(
    "options",
    [Options(), Options(sub_via=frozenset({"subscribe"})), Options(ww_deps=False), Options(commit_placement=True)],
)
def test_everything_else_is_always_an_error(options: Options) -> None:
    assert options.allowed() <= {"int-send-skip"} | INTERLEAVED | REBALANCED


def test_errors_come_before_what_is_allowed_and_the_shortest_cycle_first() -> None:
    log = SimulatedLog(3, fault=Fault.DUPLICATE)
    verdict = check(log.run(400), Options())
    assert log.is_fault_done
    is_error = [found.is_error for found in verdict.found.values()]
    assert is_error == sorted(is_error, reverse=True)
    assert True in is_error
    assert False in is_error
    lengths = [len(cycle.steps) for cycle in verdict.found["G0"].shown]
    assert lengths == sorted(lengths)


def test_what_is_allowed_comes_last_whatever_its_kind() -> None:
    made = Made().did(0, sent(1, 5), sent(2, 7)).did(1, sent(3, 6)).did(1, sent(4, 4))
    assert list(check(made.history(), Options(ww_deps=False)).found) == ["unseen", "nonmonotonic-send", "int-send-skip"]


def test_of_many_anomalies_the_farthest_are_kept() -> None:
    made = Made()
    for value in range(100):
        made.did(0, sent(value, value))
    for value in range(1, 100):
        made.did(value, read((0, 0), (value, value)))
    found = check(made.history(), Options()).found["int-poll-skip"]
    assert (found.count, len(found.shown)) == (98, SHOWN_MAX)
    assert found.shown[0].delta == 99


def test_a_verdict_counts_calls_and_causes() -> None:
    made = (
        Made().did(0, sent(1, 0)).begun(0, sent(2)).ended(0, sent(2), kind="info", error="timed out").begun(1, sent(3))
    )
    verdict = check(made.history(), Options())
    assert verdict.call_counts == {("send", "ok", "made"): 1, ("send", "info", "made"): 2}
    assert verdict.info_causes == {"timed out": 1, "never ended": 1}
    assert not verdict.has_final_read


def test_the_summary_tells_the_verdict_and_every_kind() -> None:
    made = Made().did(0, sent(1), kind="fail").did(1, read((5, 1)))
    assert check(made.history(), Options()).summary() == (
        "NOT VALID\n"
        f"ERROR G1a: 1 ({MEANINGS['G1a']})\n"
        "    T3 (ok, process 1) read value 1 of a-0, sent by T1 (fail, process 0)"
    )
    assert check(Made().history(), Options()).summary() == "valid"


def test_a_history_of_nothing_is_valid() -> None:
    verdict = check(Made().history(), Options())
    assert verdict.is_valid
    assert not verdict.found
    assert not verdict.lags


def test_every_kind_has_its_meaning() -> None:
    assert set(MEANINGS) == set(get_args(Kind))
