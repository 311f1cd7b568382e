"""Every safety rule that is switched off is noticed.

Each mutation is caught by the seed that caught it before; where a change of the code has made another run of that seed,
by another seed. `python -m tests.simulation.mutations.safety_rules` then writes that one down. That its seed is sound
without the mutation, `test_simulation` proves of the first ones, and a slow test of the others. The safety rules' own,
which have their number in front, are tried each time; those of the rules of Kafka that stand beside them by slow tests.
What drawn worlds hardly ever show has no seed: `test_scripted_rules`.
"""

import re
from itertools import chain

import pytest

from tests.simulation.mutations.mutation import MUTATIONS, drawn_mutations
from tests.simulation.mutations.safety_rules import candidates, catch, table
from tests.simulation.seeds import SEEDS
from tests.simulation.world import run

OF_SAFETY_RULES = re.compile(r"s\d+_")


def test_every_mutation_has_its_seed() -> None:
    assert sorted(table()) == sorted(drawn_mutations())


@pytest.mark.parametrize("name", drawn_mutations())
def test_a_mutation_finds_what_it_replaces(name: str) -> None:
    with MUTATIONS[name].switch_off():
        pass


@pytest.mark.parametrize(
    "name",
    [
        name if OF_SAFETY_RULES.match(name) else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
        for name in drawn_mutations()
    ],
)
def test_a_mutation_is_caught(name: str) -> None:
    assert catch(name, chain([table()[name]], candidates(name))) is not None, "no seed catches it any more"


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({seed for seed in table().values() if seed > SEEDS}))
def test_without_a_mutation_the_same_seed_is_sound(seed: int) -> None:
    assert not run(seed).violations
