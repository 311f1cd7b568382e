"""Worlds of one embedded broker, whose journal is torn, fails and fills, and is killed.

That nothing acknowledged is lost, comes twice or changes its order is for the world's own auditors; after each start
the journal is compared with what was written, too (`tests.simulation.cluster.embedded`).
"""

from collections import Counter
from itertools import count

import pytest

from tests.simulation.cluster import embedded
from tests.simulation.mutations.patches import patched
from tests.simulation.scripted_plans import embedded_plan
from tests.simulation.seeds import assert_sound
from tests.simulation.world import run

SEED = 380
WORLDS_MIN = 3
WORLDS_MAX = 40
CONSEQUENCES = {"crashes", "loses its power", "stopped", "torn", "failed write found"}
"""What has to happen in some world: of the last two, a start that has found a part of a write, or all of one that had
failed."""


def test_every_world_is_sound_and_none_is_idle() -> None:
    happened = Counter[str]()
    for worlds, seed in enumerate(range(SEED, SEED + WORLDS_MAX), start=1):
        verdict = run(seed, embedded_plan())
        assert_sound(verdict)
        happened.update(verdict.counts)
        if worlds >= WORLDS_MIN and happened.keys() >= CONSEQUENCES:
            return
    raise AssertionError(f"{WORLDS_MAX} worlds never met {CONSEQUENCES - happened.keys()}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_worlds_are_sound() -> None:
    for seed in range(SEED + WORLDS_MAX, SEED + 5 * WORLDS_MAX):
        assert_sound(run(seed, embedded_plan()))


def test_a_world_is_the_same_again() -> None:
    assert run(SEED, embedded_plan()).digest == run(SEED, embedded_plan()).digest


@pytest.mark.parametrize("sync", ["sync_data", "sync_directory"])
def test_without_its_syncs_the_journal_loses_what_was_acknowledged(sync: str) -> None:
    with patched(embedded, "SYNCS_LEFT_OUT", sync):
        verdict = next(found for seed in count(SEED) if (found := run(seed, embedded_plan())).violations)
    assert verdict.seed < SEED + WORLDS_MAX
    assert any(word in verdict.violations[0] for word in ("the journal", "LedgerCorrupt")), verdict.violations
