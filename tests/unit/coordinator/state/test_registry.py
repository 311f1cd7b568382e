"""Whatever contradicts itself in a registry is noticed."""

from collections.abc import Callable

import pytest

from coordinator.state.registry import Registry, SubjectState, VersionState, registry_faults
from tests.support.commands.commands import Cluster
from tests.support.commands.schema_commands import content, register


def filled() -> Registry:
    cluster = Cluster.started()
    cluster.do(register(cluster, "a", "one"))
    cluster.do(register(cluster, "a", content("two", ("a", 1))))
    return cluster.state.registry


def lose_a_schema(registry: Registry) -> None:
    del registry.schemas[1]


def turn_versions_round(registry: Registry) -> None:
    versions = registry.subjects["a"].versions
    registry.subjects["a"].versions = dict(reversed(versions.items()))


def empty_a_subject(registry: Registry) -> None:
    registry.subjects["b"] = SubjectState(changed_at=1)


def change_in_the_future(registry: Registry) -> None:
    registry.subjects["a"].changed_at = registry.changes_count + 1


def give_an_id_twice(registry: Registry) -> None:
    registry.schema_id_next = 1


def forget_a_digest(registry: Registry) -> None:
    registry.ids_by_digest.clear()


def keep_what_nobody_uses(registry: Registry) -> None:
    registry.add_schema(9, content("three"))


def refer_to_nothing(registry: Registry) -> None:
    registry.add_schema(9, content("three", ("a", 7), ("c", 1)))
    registry.put_version("a", 3, VersionState(schema_id=9))


def test_a_registry_that_entries_made_has_no_faults() -> None:
    assert list(registry_faults(filled())) == []


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lose_a_schema, "the schema 1, which is not there"),
        (turn_versions_round, "has the versions [2, 1]"),
        (empty_a_subject, "has the versions []"),
        (change_in_the_future, "changed at 3 of 2"),
        (give_an_id_twice, "schema_id_next"),
        (forget_a_digest, "ids_by_digest"),
        (keep_what_nobody_uses, "schema 9 is no version"),
        (refer_to_nothing, "'a' version 7, which is not there"),
        (refer_to_nothing, "'c' version 1, which is not there"),
    ],
)
def test_what_contradicts_itself_is_reported(break_it: Callable[[Registry], None], told: str) -> None:
    registry = filled()
    break_it(registry)
    assert any(told in fault for fault in registry_faults(registry))


def test_a_content_is_found_under_the_subject_that_has_it() -> None:
    registry = filled()
    assert registry.find("a", content("one")) == (1, 1)
    assert registry.find("b", content("one")) is None
    assert registry.find("a", content("none")) is None


def test_names_and_texts_do_not_run_together() -> None:
    digests = {
        content("ab", ("c", 1)).digest,
        content("a", ("bc", 1)).digest,
        content("ab", ("c", 11)).digest,
        content("ab", ("c", 1), ("c", 1)).digest,
        content("ab").digest,
    }
    assert len(digests) == 5
