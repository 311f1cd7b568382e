"""A seed is the whole run: in this process, in another one, and whatever order Python's hashes have."""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.architecture.source import ROOT
from tests.simulation.world import Verdict, run

SEEDS = (1, 8, 33)


@cache
def first_run(seed: int) -> Verdict:
    """One of this process, for all tests to compare with."""
    return run(seed)


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
def test_two_runs_of_a_seed_are_the_same(seed: int) -> None:
    first, second = first_run(seed), run(seed)
    assert first.digest == second.digest
    assert first.steps == second.steps
    assert first.trace == second.trace


@pytest.mark.parametrize(
    ("hash_seed", "seeds"), [("0", SEEDS[:1]), pytest.param("4242", SEEDS, marks=pytest.mark.slow)], ids=["0", "4242"]
)
def test_a_run_does_not_depend_on_the_order_of_hashes(hash_seed: str, seeds: tuple[int, ...]) -> None:
    program = f"from tests.simulation.world import run\nfor seed in {seeds}: print(run(seed).digest)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stdout.split() == [first_run(seed).digest for seed in seeds]


def test_other_seeds_are_other_runs() -> None:
    assert len({first_run(seed).digest for seed in SEEDS}) == len(SEEDS)
