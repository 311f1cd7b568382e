"""Every safety rule that is switched off is noticed: each mutation is caught by the seed that caught it before."""

import pytest

from tests.simulation.mutations import MUTATIONS, catch, table
from tests.simulation.world import run


def test_every_mutation_has_its_seed() -> None:
    assert list(table()) == list(MUTATIONS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_caught(name: str) -> None:
    seed = table()[name]
    assert catch(name, [seed]) is not None, f"seed {seed} does not catch it any more: find another, see `mutations`"


@pytest.mark.parametrize("seed", sorted(set(table().values())))
def test_without_a_mutation_the_same_seed_is_sound(seed: int) -> None:
    assert not run(seed).violations
