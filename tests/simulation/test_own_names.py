"""Agents that are sure of their names end the session that holds one: after a crash, or while it goes on (S12)."""

import random
from dataclasses import replace

import pytest

from tests.simulation.faults.fault_names import FaultName
from tests.simulation.plan import Plan, draw
from tests.simulation.seeds import assert_sound
from tests.simulation.world import run

FAULTS = (FaultName.CRASH, FaultName.NAMESAKE, FaultName.LEDGER_SHAKY)
SEEDS = (1, 8)


def plan_of(seed: int, faults: tuple[FaultName, ...]) -> Plan:
    """The world of a seed, with these faults, often."""
    return replace(
        draw(random.Random(seed)),
        is_taking_over_name=True,
        faults=faults,
        fault_interval_s=1.0,
        ledger_loss=None,
        has_older_agents=False,
        seconds=15.0,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_s12_a_name_is_taken_at_once_and_nothing_of_the_session_before_counts_after(seed: int) -> None:
    verdict = run(seed, plan_of(seed, FAULTS))
    assert_sound(verdict)
    assert verdict.counts["session revoked"] > 1
    assert verdict.counts["is left behind"] > 0


def test_some_drawn_worlds_have_such_agents_and_some_of_these_have_namesakes() -> None:
    plans = [draw(random.Random(seed)) for seed in range(1, 101)]
    takers = [plan for plan in plans if plan.is_taking_over_name]
    assert 5 < len(takers) < 30
    assert 0 < sum(FaultName.NAMESAKE in plan.faults for plan in takers) < len(takers)
    assert not any(FaultName.NAMESAKE in plan.faults for plan in plans if not plan.is_taking_over_name)
