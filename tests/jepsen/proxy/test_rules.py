"""Which messages a rule strikes, and how often."""

import dataclasses

import pytest

from tests.jepsen.proxy.frame_bytes import END_TXN_V1, END_TXN_V3, PRODUCE_V9
from tests.jepsen.proxy.frames import Api, ProxiedRequest, is_commit
from tests.jepsen.proxy.rules import Act, Rule, Rulebook, Side

COMMIT, ABORT, PRODUCE = (ProxiedRequest.read(frame) for frame in (END_TXN_V1, END_TXN_V3, PRODUCE_V9))
HOLD = Rule(act=Act.HOLD, api_key=Api.END_TXN)


def struck(rule: Rule, *requests: ProxiedRequest, side: Side = Side.REQUEST) -> list[bool]:
    rules = Rulebook()
    rules.add(rule)
    return [rules.strike(side, request) is rule for request in requests]


def test_a_rule_strikes_the_requests_of_its_api_once() -> None:
    assert struck(HOLD, PRODUCE, COMMIT, COMMIT) == [False, True, False]


def test_a_rule_strikes_as_often_as_it_says() -> None:
    assert struck(dataclasses.replace(HOLD, times_max=2), COMMIT, COMMIT, COMMIT) == [True, True, False]


def test_a_rule_for_answers_leaves_requests_alone() -> None:
    rule = dataclasses.replace(HOLD, side=Side.ANSWER)
    assert struck(rule, COMMIT) == [False]
    assert struck(rule, COMMIT, side=Side.ANSWER) == [True]


@pytest.mark.parametrize(
    ("rule", "strikes_commit", "strikes_abort"),
    [
        (dataclasses.replace(HOLD, versions=range(2)), True, False),
        (dataclasses.replace(HOLD, client_id="a1"), True, True),
        (dataclasses.replace(HOLD, client_id="a2"), False, False),
        (dataclasses.replace(HOLD, transactional_id="t1"), True, True),
        (dataclasses.replace(HOLD, transactional_id="t2"), False, False),
        (dataclasses.replace(HOLD, body=is_commit), True, False),
    ],
)
def test_every_condition_must_hold(rule: Rule, strikes_commit: bool, strikes_abort: bool) -> None:
    assert struck(rule, COMMIT) == [strikes_commit]
    assert struck(rule, ABORT) == [strikes_abort]


def test_the_first_rule_that_matches_strikes_and_the_next_one_when_it_is_used_up() -> None:
    rules, drop = Rulebook(), Rule(act=Act.DROP, api_key=Api.END_TXN)
    rules.add(HOLD)
    rules.add(drop)
    assert [rules.strike(Side.REQUEST, COMMIT) for _ in range(3)] == [HOLD, drop, None]


def test_a_rule_that_was_taken_away_strikes_no_more() -> None:
    rules = Rulebook()
    rules.add(HOLD)
    rules.remove(HOLD)
    assert rules.strike(Side.REQUEST, COMMIT) is None


def test_an_answer_is_not_duplicated() -> None:
    with pytest.raises(AssertionError, match="not duplicated"):
        Rulebook().add(Rule(act=Act.DUPLICATE, api_key=Api.END_TXN, side=Side.ANSWER))
