"""Names are the field's words: no class name stands twice, and words of a private dialect become fewer."""

import ast
from collections import defaultdict

import pytest

from tests.architecture.source import modules, place, tree
from tests.architecture.words import (
    WORD_FOLDERS,
    banned_identifiers,
    banned_lines,
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
    twice = [f"{name}: {', '.join(places)}" for name, places in _classes(*WORD_FOLDERS).items() if len(places) > 1]
    assert not twice, "\n".join(twice)


def test_no_class_of_tests_or_tools_has_the_name_of_one_in_a_package() -> None:
    """Two test modules may have classes of one name: each belongs to its module, and no reader meets both."""
    packages = _classes(*WORD_FOLDERS)
    twice = [
        f"{name}: {', '.join((*packages[name], *places))}"
        for name, places in _classes(*OTHERS).items()
        if name in packages
    ]
    assert not twice, "\n".join(twice)


@pytest.mark.parametrize("folder", WORD_FOLDERS)
def test_banned_words_in_names_become_fewer(folder: str) -> None:
    found = list(banned_identifiers(folder))
    assert len(found) <= recorded()[f"{folder} identifiers"], "\n".join(found)


@pytest.mark.parametrize("folder", WORD_FOLDERS)
def test_participles_as_names_become_fewer(folder: str) -> None:
    found = list(participles(folder))
    assert len(found) <= recorded()[f"{folder} participles"], "\n".join(found)


@pytest.mark.parametrize("folder", WORD_FOLDERS)
def test_docstrings_without_a_subject_become_fewer(folder: str) -> None:
    found = list(docstrings_without_subject(folder))
    assert len(found) <= recorded()[f"{folder} docstrings"], "\n".join(found)


@pytest.mark.parametrize("folder", WORD_FOLDERS)
def test_banned_words_in_texts_become_fewer(folder: str) -> None:
    found = list(banned_texts(folder))
    assert len(found) <= recorded()[f"{folder} texts"], "\n".join(found)


def test_no_text_of_the_deployment_has_a_banned_word() -> None:
    """Values, templates, notes and messages of the chart, the compose file, rules and dashboards."""
    found = list(banned_lines())
    assert not found, "\n".join(found)


def test_every_count_is_recorded() -> None:
    assert recorded().keys() == counts().keys()


def test_a_name_is_split_into_its_words() -> None:
    assert words_of("_tell_HTTPNews2") == {"tell", "http", "news"}
