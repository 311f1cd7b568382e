"""Every safety rule that is switched off is noticed.

Each mutation is caught by the seed that caught it before; where a change of the code has made another run of that seed,
by another seed, whose world is sound without the mutation. `python -m tests.simulation.mutations.safety_rules` then
writes that one down. That its seed is sound without the mutation, `test_simulation` proves of the first ones, and a
slow test of the others. The safety rules' own, which have their number in front, are tried each time; those of the
rules of Kafka that stand beside them by slow tests.
What drawn worlds hardly ever show has no seed: `test_scripted_rules`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import cast

import pytest

from tests.simulation.mutations import safety_rules
from tests.simulation.mutations.mutation import MUTATIONS, drawn_mutations
from tests.simulation.mutations.safety_rules import candidates, catch, table
from tests.simulation.seeds import SEEDS
from tests.simulation.world import Verdict, run

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


def test_a_world_that_is_unsound_anyway_catches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = drawn_mutations()[0]
    (known, unsound, sound), ran = (table()[name], -1, -2), list[int]()
    is_on = False

    @contextmanager
    def switched_off() -> Iterator[None]:
        nonlocal is_on
        is_on = True
        yield
        is_on = False

    def violated(seed: int) -> Verdict:
        ran.append(seed)
        violations = ("wrong",) if is_on or seed == unsound else ()
        return cast("Verdict", SimpleNamespace(seed=seed, violations=violations))

    monkeypatch.setitem(MUTATIONS, name, replace(MUTATIONS[name], switch_off=switched_off))
    monkeypatch.setattr(safety_rules, "run", violated)
    assert catch(name, [unsound]) is None
    caught = catch(name, [unsound, sound])
    assert caught is not None
    assert caught.seed == sound
    ran.clear()
    assert catch(name, [known, sound]) is not None
    assert ran == [known]  # that it is sound otherwise is not proved again each time


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({seed for seed in table().values() if seed > SEEDS}))
def test_without_a_mutation_the_same_seed_is_sound(seed: int) -> None:
    assert not run(seed).violations
