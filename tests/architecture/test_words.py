"""Names are the field's words: no class name stands twice, and words of a private dialect become fewer."""

import ast
from collections import defaultdict

import pytest

from tests.architecture.source import PACKAGES, modules, place, tree
from tests.architecture.words import (
    banned_identifiers,
    banned_texts,
    counts,
    docstrings_without_subject,
    participles,
    recorded,
    words_of,
)

OTHERS = ("tests", "tools", "benchmarks")


def _classes(*folders: str) -> dict[str, list[str]]:
    """Every class below the folders by its name, nested ones and private ones too."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules(*folders):
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(place(module, node))
    return found


def test_no_class_of_a_package_shares_its_name() -> None:
    twice = [f"{name}: {', '.join(places)}" for name, places in _classes(*PACKAGES).items() if len(places) > 1]
    assert not twice, "\n".join(twice)


def test_no_class_of_tests_or_tools_has_the_name_of_one_in_a_package() -> None:
    """Two test modules may have classes of one name: each belongs to its module, and no reader meets both."""
    packages = _classes(*PACKAGES)
    twice = [
        f"{name}: {', '.join((*packages[name], *places))}"
        for name, places in _classes(*OTHERS).items()
        if name in packages
    ]
    assert not twice, "\n".join(twice)


@pytest.mark.parametrize("package", PACKAGES)
def test_banned_words_in_names_become_fewer(package: str) -> None:
    found = list(banned_identifiers(package))
    assert len(found) <= recorded()[f"{package} identifiers"], "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_participles_as_names_become_fewer(package: str) -> None:
    found = list(participles(package))
    assert len(found) <= recorded()[f"{package} participles"], "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_without_a_subject_become_fewer(package: str) -> None:
    found = list(docstrings_without_subject(package))
    assert len(found) <= recorded()[f"{package} docstrings"], "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_banned_words_in_texts_become_fewer(package: str) -> None:
    found = list(banned_texts(package))
    assert len(found) <= recorded()[f"{package} texts"], "\n".join(found)


def test_every_count_is_recorded() -> None:
    assert recorded().keys() == counts().keys()


def test_a_name_is_split_into_its_words() -> None:
    assert words_of("_tell_HTTPNews2") == {"tell", "http", "news"}
