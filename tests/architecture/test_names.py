"""Our bare package names are ours: they resolve into the checkout, and no installed distribution provides them."""

import importlib.util
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture.source import FOLDERS, ROOT


@pytest.mark.parametrize("name", FOLDERS)
def test_a_bare_name_resolves_into_the_checkout(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    assert {Path(location).resolve() for location in spec.submodule_search_locations} == {ROOT / name}


def test_no_locked_dependency_provides_one_of_our_names() -> None:
    provided = packages_distributions()
    foreign = {name: provided[name] for name in FOLDERS if set(provided.get(name, ())) - {"penstock-broker"}}
    assert foreign == {}
