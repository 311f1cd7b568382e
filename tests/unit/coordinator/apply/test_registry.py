"""Schemas get ids and versions where entries are applied, and are judged again where others came before."""

import pytest

from coordinator.apply import registry as apply_registry
from coordinator.commands.commands import Done, Outcome
from coordinator.commands.registry import (
    EVERY_SUBJECT,
    Compatibility,
    DeleteVersions,
    RegistryError,
    RegistryMode,
    RegistryRejected,
    SchemaRegistered,
    SetCompatibility,
    SetMode,
    VersionsDeleted,
)
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.registry import VersionState
from protocol.limits import SUBJECT_CHARS_MAX
from tests.support.commands.commands import Cluster
from tests.support.commands.schema_commands import content, register


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.started()


def registered(schema_id: int, version: int) -> SchemaRegistered:
    return SchemaRegistered(schema_id=schema_id, version=version)


def rejection(outcome: Outcome) -> RegistryError:
    assert isinstance(outcome, RegistryRejected), outcome
    assert outcome.reason
    return outcome.error


def delete(cluster: Cluster, subject: str, version: int | None = None, *, permanent: bool = False) -> Outcome:
    return cluster.do(DeleteVersions(subject=subject, version=version, is_permanent=permanent))


def deleted(*versions: int) -> VersionsDeleted:
    return VersionsDeleted(versions=versions)


def set_mode(cluster: Cluster, subject: str, mode: RegistryMode | None, *, forced: bool = False) -> Outcome:
    return cluster.do(SetMode(subject=subject, mode=mode, is_forced=forced))


def set_compatibility(cluster: Cluster, subject: str, compatibility: Compatibility | None) -> Outcome:
    return cluster.do(SetCompatibility(subject=subject, compatibility=compatibility))


def same_after_a_snapshot(cluster: Cluster) -> None:
    copy = decode_snapshot(encode_snapshot(cluster.state))
    assert copy.registry == cluster.state.registry
    assert digest(copy) == digest(cluster.state)


class TestRegistering:
    def test_versions_count_by_subject_and_ids_for_all(self, cluster: Cluster) -> None:
        assert cluster.do(register(cluster, "a", "one")) == registered(1, 1)
        assert cluster.do(register(cluster, "a", "two")) == registered(2, 2)
        assert cluster.do(register(cluster, "b", "three")) == registered(3, 1)
        same_after_a_snapshot(cluster)

    def test_one_content_has_one_id_under_any_subject(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        assert cluster.do(register(cluster, "b", "one")) == registered(1, 1)
        assert cluster.state.registry.users_of(1, with_deleted=False) == [("a", 1), ("b", 1)]

    def test_what_is_registered_is_found_again_however_it_was_checked(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        cluster.do(register(cluster, "a", "two"))
        before = cluster.state.registry.changes_count
        assert cluster.do(register(cluster, "a", "one", checked_at=0)) == registered(1, 1)
        assert cluster.state.registry.changes_count == before

    def test_references_are_part_of_the_content(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        cluster.do(register(cluster, "b", "two"))
        assert cluster.do(register(cluster, "b", content("two", ("a", 1)))) == registered(3, 2)
        assert cluster.state.registry.referrers_of("a", 1, with_deleted=False) == [3]
        same_after_a_snapshot(cluster)

    def test_of_two_at_a_time_the_second_is_judged_again(self, cluster: Cluster) -> None:
        first, second = register(cluster, "a", "one"), register(cluster, "a", "two")
        assert cluster.do(first) == registered(1, 1)
        assert rejection(cluster.do(second)) is RegistryError.CHANGED_MEANWHILE
        assert cluster.do(register(cluster, "a", "two")) == registered(2, 2)

    def test_so_is_one_whose_subject_was_made_anew_or_asks_for_more_now(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        late = register(cluster, "a", "two")
        for permanent in (False, True):
            delete(cluster, "a", permanent=permanent)
        cluster.do(register(cluster, "a", "one"))
        assert rejection(cluster.do(late)) is RegistryError.CHANGED_MEANWHILE
        late = register(cluster, "a", "two")
        set_compatibility(cluster, EVERY_SUBJECT, Compatibility.FULL)
        assert rejection(cluster.do(late)) is RegistryError.CHANGED_MEANWHILE

    def test_where_everything_goes_nothing_is_judged_again(self, cluster: Cluster) -> None:
        set_compatibility(cluster, "a", Compatibility.NONE)
        first, second = register(cluster, "a", "one"), register(cluster, "a", "two")
        assert cluster.do(first) == registered(1, 1)
        assert cluster.do(second) == registered(2, 2)

    @pytest.mark.parametrize("subject", ["", "x" * (SUBJECT_CHARS_MAX + 1)])
    def test_a_subject_has_a_name(self, cluster: Cluster, subject: str) -> None:
        assert rejection(cluster.do(register(cluster, subject, "one"))) is RegistryError.INVALID_SUBJECT

    def test_what_it_refers_to_is_there(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        assert rejection(cluster.do(register(cluster, "b", content("two", ("a", 2))))) is RegistryError.INVALID_SCHEMA
        assert rejection(cluster.do(register(cluster, "b", content("two", ("c", 1))))) is RegistryError.INVALID_SCHEMA
        delete(cluster, "a")
        assert rejection(cluster.do(register(cluster, "b", content("two", ("a", 1))))) is RegistryError.INVALID_SCHEMA


class TestLimits:
    def test_references_are_few_and_short(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster.do(register(cluster, "a", "one"))
        monkeypatch.setattr(apply_registry, "SCHEMA_REFERENCES_MAX", 1)
        two = content("two", ("a", 1), ("a", 1))
        assert rejection(cluster.do(register(cluster, "b", two))) is RegistryError.INVALID_SCHEMA
        monkeypatch.setattr(apply_registry, "SCHEMA_REFERENCES_BYTES_MAX", 1)
        assert rejection(cluster.do(register(cluster, "b", content("two", ("a", 1))))) is RegistryError.INVALID_SCHEMA

    def test_a_schema_is_not_too_large(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_registry, "SCHEMA_BYTES_MAX", 3)
        assert cluster.do(register(cluster, "a", "one")) == registered(1, 1)
        assert rejection(cluster.do(register(cluster, "a", "four"))) is RegistryError.SCHEMA_TOO_LARGE

    @pytest.mark.parametrize(
        ("limit", "value", "subject"),
        [
            ("REGISTRY_SUBJECTS_MAX", 1, "b"),
            ("SUBJECT_VERSIONS_MAX", 1, "a"),
            ("SCHEMAS_MAX", 1, "a"),
            ("REGISTRY_TEXT_BYTES_MAX", 5, "a"),
            ("ID_END", 2, "b"),
        ],
    )
    def test_there_is_a_most_of_everything(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, subject: str
    ) -> None:
        cluster.do(register(cluster, "a", "one"))
        monkeypatch.setattr(apply_registry, limit, value)
        outcome = cluster.do(register(cluster, subject, "two"))
        assert rejection(outcome) is RegistryError.OPERATION_NOT_PERMITTED
        assert isinstance(outcome, RegistryRejected)
        assert "Permanently delete" in outcome.reason

    def test_of_settings_too(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_registry, "REGISTRY_SUBJECTS_MAX", 0)
        assert set_compatibility(cluster, "a", Compatibility.FULL) == Done()
        outcome = set_compatibility(cluster, "b", Compatibility.FULL)
        assert rejection(outcome) is RegistryError.OPERATION_NOT_PERMITTED
        assert set_compatibility(cluster, "a", Compatibility.NONE) == Done()
        monkeypatch.undo()
        too_long = "x" * (SUBJECT_CHARS_MAX + 1)
        assert rejection(set_compatibility(cluster, too_long, Compatibility.FULL)) is RegistryError.INVALID_SUBJECT


class TestDeleting:
    def test_first_from_sight_then_for_ever(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        cluster.do(register(cluster, "a", "two"))
        assert delete(cluster, "a") == deleted(1, 2)
        same_after_a_snapshot(cluster)
        assert cluster.state.registry.live_version("a", 1) is None
        assert cluster.state.registry.schemas[1] == content("one")
        assert delete(cluster, "a", permanent=True) == deleted(1, 2)
        assert not cluster.state.registry.schemas
        assert cluster.do(register(cluster, "a", "one")) == registered(3, 1)
        same_after_a_snapshot(cluster)

    def test_a_version_by_itself(self, cluster: Cluster) -> None:
        for text in ("one", "two", "three"):
            cluster.do(register(cluster, "a", text))
        assert delete(cluster, "a", 2) == deleted(2)
        assert delete(cluster, "a", 2, permanent=True) == deleted(2)
        assert list(cluster.state.registry.subjects["a"].versions) == [1, 3]
        assert cluster.do(register(cluster, "a", "two")) == registered(4, 4)
        same_after_a_snapshot(cluster)

    def test_a_content_that_comes_back_has_its_id_and_another_version(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        delete(cluster, "a")
        assert cluster.do(register(cluster, "a", "one")) == registered(1, 2)
        assert cluster.state.registry.find("a", content("one"), with_deleted=True) == (1, 2)
        assert delete(cluster, "a", 1, permanent=True) == deleted(1)
        assert cluster.state.registry.schemas.keys() == {1}

    def test_settings_of_a_subject_go_with_it(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        set_compatibility(cluster, "a", Compatibility.FULL)
        set_mode(cluster, "a", RegistryMode.READWRITE)
        delete(cluster, "a")
        assert cluster.state.registry.compatibilities == {}
        assert cluster.state.registry.modes == {}

    def test_what_is_not_there_is_refused(self, cluster: Cluster) -> None:
        assert rejection(delete(cluster, "a")) is RegistryError.SUBJECT_NOT_FOUND
        cluster.do(register(cluster, "a", "one"))
        assert rejection(delete(cluster, "a", 2)) is RegistryError.VERSION_NOT_FOUND

    def test_the_two_steps_are_taken_in_their_order(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        assert rejection(delete(cluster, "a", permanent=True)) is RegistryError.SUBJECT_NOT_SOFT_DELETED
        assert rejection(delete(cluster, "a", 1, permanent=True)) is RegistryError.VERSION_NOT_SOFT_DELETED
        delete(cluster, "a")
        assert rejection(delete(cluster, "a")) is RegistryError.SUBJECT_SOFT_DELETED
        assert rejection(delete(cluster, "a", 1)) is RegistryError.VERSION_SOFT_DELETED

    def test_nothing_goes_that_others_refer_to(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        cluster.do(register(cluster, "b", content("two", ("a", 1))))
        assert rejection(delete(cluster, "a")) is RegistryError.REFERENCE_EXISTS
        assert rejection(delete(cluster, "a", 1)) is RegistryError.REFERENCE_EXISTS
        assert delete(cluster, "b") == deleted(1)
        assert delete(cluster, "a") == deleted(1)
        assert rejection(delete(cluster, "a", permanent=True)) is RegistryError.REFERENCE_EXISTS
        assert delete(cluster, "b", permanent=True) == deleted(1)
        assert delete(cluster, "a", permanent=True) == deleted(1)
        assert not cluster.state.registry.referrers

    def test_versions_that_refer_to_each_other_go_together(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        cluster.do(register(cluster, "a", content("two", ("a", 1))))
        cluster.do(register(cluster, "a", content("three", ("a", 1))))
        assert rejection(delete(cluster, "a", 1)) is RegistryError.REFERENCE_EXISTS
        assert delete(cluster, "a") == deleted(1, 2, 3)
        assert delete(cluster, "a", permanent=True) == deleted(1, 2, 3)


class TestSettings:
    def test_a_subject_has_its_own_or_those_of_all(self, cluster: Cluster) -> None:
        registry = cluster.state.registry
        assert registry.compatibility("a") is Compatibility.BACKWARD
        assert registry.mode("a") is RegistryMode.READWRITE
        set_compatibility(cluster, EVERY_SUBJECT, Compatibility.FULL)
        set_compatibility(cluster, "a", Compatibility.NONE)
        set_mode(cluster, EVERY_SUBJECT, RegistryMode.READONLY)
        set_mode(cluster, "a", RegistryMode.READWRITE)
        assert (registry.compatibility("a"), registry.compatibility("b")) == (Compatibility.NONE, Compatibility.FULL)
        assert (registry.mode("a"), registry.mode("b")) == (RegistryMode.READWRITE, RegistryMode.READONLY)
        same_after_a_snapshot(cluster)
        assert set_compatibility(cluster, "a", None) == set_mode(cluster, "a", None) == Done()
        assert set_mode(cluster, EVERY_SUBJECT, None) == set_compatibility(cluster, EVERY_SUBJECT, None) == Done()
        assert registry.compatibilities == registry.modes == {}

    def test_there_is_something_to_remove(self, cluster: Cluster) -> None:
        assert rejection(set_compatibility(cluster, "a", None)) is RegistryError.SUBJECT_NOT_FOUND
        assert rejection(set_mode(cluster, "a", None)) is RegistryError.SUBJECT_NOT_FOUND
        assert set_compatibility(cluster, EVERY_SUBJECT, None) == Done()

    @pytest.mark.parametrize("subject", [EVERY_SUBJECT, "a"])
    def test_nothing_is_changed_that_is_to_be_read_only(self, cluster: Cluster, subject: str) -> None:
        cluster.do(register(cluster, "a", "one"))
        set_mode(cluster, subject, RegistryMode.READONLY)
        assert rejection(cluster.do(register(cluster, "a", "two"))) is RegistryError.OPERATION_NOT_PERMITTED
        assert rejection(delete(cluster, "a")) is RegistryError.OPERATION_NOT_PERMITTED
        outcome = set_compatibility(cluster, subject, Compatibility.FULL)
        assert rejection(outcome) is RegistryError.OPERATION_NOT_PERMITTED
        assert cluster.do(register(cluster, "a", "one")) == registered(1, 1)


class TestImports:
    def test_schemas_keep_the_ids_and_versions_that_they_had(self, cluster: Cluster) -> None:
        set_mode(cluster, "a", RegistryMode.IMPORT)
        assert cluster.do(register(cluster, "a", "one", schema_id=70, version=7)) == registered(70, 7)
        assert cluster.do(register(cluster, "a", "two", schema_id=20, version=2)) == registered(20, 2)
        assert cluster.do(register(cluster, "a", "three", schema_id=71)) == registered(71, 8)
        assert cluster.do(register(cluster, "a", "three", schema_id=71)) == registered(71, 8)
        assert cluster.do(register(cluster, "a", "three", version=9)) == registered(71, 9)
        assert list(cluster.state.registry.subjects["a"].versions) == [2, 7, 8, 9]
        same_after_a_snapshot(cluster)
        assert cluster.do(register(cluster, "b", "four")) == registered(72, 1)

    def test_a_version_that_is_there_comes_back_from_its_deletion(self, cluster: Cluster) -> None:
        set_mode(cluster, EVERY_SUBJECT, RegistryMode.IMPORT)
        cluster.do(register(cluster, "a", "one", schema_id=5, version=1))
        delete(cluster, "a", 1)
        assert cluster.do(register(cluster, "a", "one", schema_id=5, version=1)) == registered(5, 1)
        assert cluster.state.registry.live_version("a", 1) == VersionState(schema_id=5)

    def test_an_id_is_one_content_for_ever_and_a_version_one_schema(self, cluster: Cluster) -> None:
        set_mode(cluster, EVERY_SUBJECT, RegistryMode.IMPORT)
        cluster.do(register(cluster, "a", "one", schema_id=5, version=1))
        for wrong in (
            register(cluster, "a", "two", schema_id=5, version=2),
            register(cluster, "a", "one", schema_id=6, version=2),
            register(cluster, "a", "two", schema_id=6, version=1),
            register(cluster, "a", "two", version=1),
        ):
            assert rejection(cluster.do(wrong)) is RegistryError.OPERATION_NOT_PERMITTED

    def test_ids_are_named_in_that_mode_and_no_other(self, cluster: Cluster) -> None:
        for wrong in (register(cluster, "a", "one", schema_id=5), register(cluster, "a", "one", version=5)):
            assert rejection(cluster.do(wrong)) is RegistryError.OPERATION_NOT_PERMITTED
        set_mode(cluster, "a", RegistryMode.IMPORT)
        assert rejection(cluster.do(register(cluster, "a", "one"))) is RegistryError.OPERATION_NOT_PERMITTED

    def test_it_begins_with_nothing_there_unless_it_is_forced(self, cluster: Cluster) -> None:
        cluster.do(register(cluster, "a", "one"))
        for subject in (EVERY_SUBJECT, "a"):
            outcome = set_mode(cluster, subject, RegistryMode.IMPORT)
            assert rejection(outcome) is RegistryError.OPERATION_NOT_PERMITTED
        assert set_mode(cluster, "b", RegistryMode.IMPORT) == Done()
        assert set_mode(cluster, "a", RegistryMode.IMPORT, forced=True) == Done()
        delete(cluster, "a")
        assert set_mode(cluster, EVERY_SUBJECT, RegistryMode.IMPORT) == Done()
