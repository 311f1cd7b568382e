"""Transactions in worlds whose ledger is lost, whose transactional ids expire, or whose transaction.version changes.

That a world in which a rule does not hold is found out, `tests.simulation.mutations.transaction_maintenance` proves.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from tests.simulation.clients.clients import ClientWorld
from tests.simulation.plan import LedgerLoss, Plan, ProducerFate, ProducerPlan, draw
from tests.simulation.scripted_plans import plan_of, producer_of
from tests.simulation.seeds import SEEDS, assert_sound
from tests.simulation.world import run

LOST_DRAWN, LATER_DRAWN = 6, 6
EXPIRATION_MS = 3_000
OFF_BY_MS = 60_000
"""Nobody believes a clock that is so far off."""
UNTIMED_SECONDS = 5.0


def plan_with(seed: int, *producers: ProducerPlan, **others: object) -> Plan:
    """As `plan_of`, with transactions of which something else is special."""
    plan = plan_of(seed, *producers)
    assert plan.transactions is not None
    return replace(plan, transactions=replace(plan.transactions, **others))  # type: ignore[arg-type]


@pytest.mark.slow
def test_s9_every_world_that_loses_its_ledger_amid_transactions_is_sound() -> None:
    def fitting() -> Iterator[int]:
        for seed in range(SEEDS + 1, 100 * SEEDS):
            plan = draw(random.Random(seed))
            if plan.transactions is not None and plan.ledger_loss is not None:
                yield seed

    for seed in islice(fitting(), LOST_DRAWN):
        assert_sound(run(seed))


def test_s9_what_was_committed_after_the_snapshot_is_lost_whole_and_that_is_said_before() -> None:
    restless = producer_of(2, pause_s=0.1, timeout_ms=60_000, rests_chance=0.5)
    plan = replace(plan_of(21, restless, replace(restless, version=1)), ledger_loss=LedgerLoss.WIPED)
    verdict = run(21, replace(plan, snapshot_entries=15, seconds=6.0))
    assert_sound(verdict)
    assert {"recovered", "loses transactions", "transaction error", "fenced"} <= verdict.counts.keys()


def test_a_recovery_without_need_loses_no_transaction_that_was_committed() -> None:
    restless = producer_of(2, pause_s=0.1, timeout_ms=60_000, rests_chance=0.5)
    plan = replace(plan_of(22, restless, restless), ledger_loss=LedgerLoss.NONE_BUT_RECOVERED)
    verdict = run(22, replace(plan, seconds=6.0))
    assert_sound(verdict)
    assert "recovered" in verdict.counts
    assert "loses transactions" not in verdict.counts


@pytest.mark.slow
def test_every_world_in_which_ids_expire_or_the_version_changes_is_sound() -> None:
    def fitting() -> Iterator[int]:
        for seed in range(SEEDS + 1, 100 * SEEDS):
            drawn = draw(random.Random(seed)).transactions
            if drawn is not None and (drawn.expiration_ms or drawn.has_version_changes):
                yield seed

    happened = Counter[str]()
    for seed in islice(fitting(), LATER_DRAWN):
        verdict = run(seed)
        assert_sound(verdict)
        happened.update(verdict.counts)
    assert {"expires", "SetTransactionVersion"} <= happened.keys()


def test_a_producer_whose_id_expired_is_told_so_and_begins_again() -> None:
    restless = [producer_of(version, fates=(ProducerFate.PAUSE,), fate_s=5.0, timeout_ms=1_500) for version in (1, 2)]
    verdict = run(27, plan_with(27, *restless, expiration_ms=EXPIRATION_MS))
    assert_sound(verdict)
    assert verdict.counts["expires"] > len(restless), "they expire at the end, if never before"
    assert "fenced" in verdict.counts
    assert verdict.counts["initialised"] > len(restless)


def test_s2_what_is_used_while_nobody_tells_the_time_does_not_expire_at_once() -> None:
    async def nobody_knows_the_time(clients: ClientWorld) -> None:
        for off_by_ms in (0, OFF_BY_MS, 0):
            for agent in clients.agents:
                agent.clock.off_by_ms = off_by_ms
            await clients.clock.sleep(UNTIMED_SECONDS)

    restless = [producer_of(version, fates=(ProducerFate.PAUSE,), timeout_ms=1_500) for version in (1, 2)]
    verdict = run(26, plan_with(26, *restless, expiration_ms=EXPIRATION_MS), nobody_knows_the_time)
    assert_sound(verdict)
    assert {"expires", "used untimed"} <= verdict.counts.keys()


def test_the_version_changes_while_transactions_are_open() -> None:
    restless = producer_of(2, rests_chance=0.5, late_chance=0.05)
    verdict = run(26, plan_with(26, restless, replace(restless, is_flow=True), has_version_changes=True))
    assert_sound(verdict)
    assert verdict.counts["SetTransactionVersion"] > 1
    assert {"AddToTransaction", "level", "committed"} <= verdict.counts.keys()
