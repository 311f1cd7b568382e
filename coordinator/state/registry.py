"""Schemas by id and by subject, as the ledger's entries make them. A field of `coordinator.state.state.ClusterState`.

Rule: only `coordinator.apply.registry` changes it, through the methods here, which keep the derived fields in step. An
id is never given twice, and a schema is kept as long as any version of a subject is it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coordinator.commands.registry import (
    EVERY_SUBJECT,
    Compatibility,
    RegistryMode,
    SchemaContent,
)

SCHEMA_ID_FIRST = 1
SUBJECT_VERSION_FIRST = 1
COMPATIBILITY_DEFAULT = Compatibility.BACKWARD
MODE_DEFAULT = RegistryMode.READWRITE
NEVER_CHANGED = 0

SubjectVersion = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionState:
    schema_id: int
    is_deleted: bool = False
    """Only those see it who ask for what was deleted, or know its id."""


@dataclass(slots=True, kw_only=True)
class SubjectState:
    versions: dict[int, VersionState] = field(default_factory=dict[int, VersionState])
    """In order of versions, and never empty."""
    changed_at: int = NEVER_CHANGED
    """`Registry.changes_count` when its versions changed last."""

    def live(self) -> list[int]:
        """Versions that are not deleted, in their order."""
        return [version for version, version_state in self.versions.items() if not version_state.is_deleted]


@dataclass(slots=True, kw_only=True)
class Registry:
    schema_id_next: int = SCHEMA_ID_FIRST
    changes_count: int = 0
    """How often the versions of a subject were changed: what was seen at one count is the same while it is."""
    schemas: dict[int, SchemaContent] = field(default_factory=dict[int, SchemaContent])
    subjects: dict[str, SubjectState] = field(default_factory=dict[str, SubjectState])
    compatibilities: dict[str, Compatibility] = field(default_factory=dict[str, Compatibility])
    """Settings by subject, and `EVERY_SUBJECT`; of subjects too that have no version yet. So are `modes`."""
    modes: dict[str, RegistryMode] = field(default_factory=dict[str, RegistryMode])
    ids_by_digest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Derived: schemas by `SchemaContent.digest`."""
    users: dict[int, dict[SubjectVersion, None]] = field(default_factory=dict[int, dict[SubjectVersion, None]])
    """Derived: which versions each schema is."""
    referrers: dict[SubjectVersion, dict[int, None]] = field(default_factory=dict[SubjectVersion, dict[int, None]])
    """Derived: schemas that refer to a version."""
    text_bytes: int = 0
    """Derived: of the texts of all schemas, in UTF-8."""

    def compatibility(self, subject: str) -> Compatibility:
        """The compatibility that the subject's next version has to have."""
        every = self.compatibilities.get(EVERY_SUBJECT, COMPATIBILITY_DEFAULT)
        return self.compatibilities.get(subject, every)

    def mode(self, subject: str) -> RegistryMode:
        return self.modes.get(subject, self.modes.get(EVERY_SUBJECT, MODE_DEFAULT))

    def changed_at(self, subject: str) -> int:
        """When the subject's versions changed last; `NEVER_CHANGED` where it has none."""
        subject_state = self.subjects.get(subject)
        return NEVER_CHANGED if subject_state is None else subject_state.changed_at

    def live_version(self, subject: str, version: int) -> VersionState | None:
        subject_state = self.subjects.get(subject)
        state = None if subject_state is None else subject_state.versions.get(version)
        return None if state is None or state.is_deleted else state

    def find(self, subject: str, content: SchemaContent, *, with_deleted: bool = False) -> tuple[int, int] | None:
        """The id and the newest version of the subject that has this content; None where none has."""
        schema_id = self.ids_by_digest.get(content.digest)
        subject_state = self.subjects.get(subject)
        if schema_id is None or subject_state is None:
            return None
        for version in reversed(subject_state.versions):
            version_state = subject_state.versions[version]
            if version_state.schema_id == schema_id and (with_deleted or not version_state.is_deleted):
                return schema_id, version
        return None

    def users_of(self, schema_id: int, *, with_deleted: bool) -> list[SubjectVersion]:
        """Subjects and versions that are this schema, in order."""
        users = self.users.get(schema_id, {})
        return sorted(
            (subject, version)
            for subject, version in users
            if with_deleted or not self.subjects[subject].versions[version].is_deleted
        )

    def referrers_of(self, subject: str, version: int, *, with_deleted: bool) -> list[int]:
        """Schemas that refer to the version and are themselves in use, in order."""
        referrers = self.referrers.get((subject, version), {})
        return sorted(each for each in referrers if self.users_of(each, with_deleted=with_deleted))

    def add_schema(self, schema_id: int, content: SchemaContent) -> None:
        """Where neither the id nor the content is there yet."""
        self.schemas[schema_id] = content
        self.ids_by_digest[content.digest] = schema_id
        self.users[schema_id] = {}
        self.text_bytes += len(content.text.encode())
        for reference in content.references:
            self.referrers.setdefault((reference.subject, reference.version), {})[schema_id] = None
        self.schema_id_next = max(self.schema_id_next, schema_id + 1)

    def put_version(self, subject: str, version: int, state: VersionState) -> None:
        """Add a version, or mark one as deleted or not."""
        versions = self.subjects.setdefault(subject, SubjectState()).versions
        is_last = not versions or version >= next(reversed(versions))
        versions[version] = state
        if not is_last:
            self.subjects[subject].versions = dict(sorted(versions.items()))
        self.users[state.schema_id][subject, version] = None

    def drop_version(self, subject: str, version: int) -> None:
        """Forget a version; its schema and its subject too, where it was their last."""
        versions = self.subjects[subject].versions
        schema_id = versions.pop(version).schema_id
        if not versions:
            del self.subjects[subject]
        del self.users[schema_id][subject, version]
        if not self.users[schema_id]:
            self._drop_schema(schema_id)

    def _drop_schema(self, schema_id: int) -> None:
        content = self.schemas.pop(schema_id)
        del self.ids_by_digest[content.digest]
        del self.users[schema_id]
        self.text_bytes -= len(content.text.encode())
        for target in {(reference.subject, reference.version) for reference in content.references}:
            del self.referrers[target][schema_id]
            if not self.referrers[target]:
                del self.referrers[target]

    def note_change(self, subject: str) -> None:
        """Say that the subject's versions are others now."""
        self.changes_count += 1
        if subject in self.subjects:
            self.subjects[subject].changed_at = self.changes_count


def registry_faults(registry: Registry) -> Iterator[str]:
    """Violated invariants of a registry. Called by `coordinator.invariants`."""
    rebuilt = Registry(schema_id_next=registry.schema_id_next)
    for schema_id, content in registry.schemas.items():
        rebuilt.add_schema(schema_id, content)
    yield from _subject_faults(registry, rebuilt)
    for what in ("ids_by_digest", "users", "referrers", "text_bytes", "schema_id_next"):
        if getattr(registry, what) != getattr(rebuilt, what):
            yield f"the registry's {what} does not follow from its schemas and subjects"
    for schema_id, users in registry.users.items():
        if not users:
            yield f"schema {schema_id} is no version of any subject"
    for subject, version in registry.referrers:
        if subject not in registry.subjects or version not in registry.subjects[subject].versions:
            yield f"schemas refer to {subject!r} version {version}, which is not there"


def _subject_faults(registry: Registry, rebuilt: Registry) -> Iterable[str]:
    for subject, state in registry.subjects.items():
        if not state.versions or list(state.versions) != sorted(state.versions):
            yield f"the subject {subject!r} has the versions {list(state.versions)}"
        if not NEVER_CHANGED < state.changed_at <= registry.changes_count:
            yield f"the subject {subject!r} changed at {state.changed_at} of {registry.changes_count}"
        for version, version_state in state.versions.items():
            if version_state.schema_id in rebuilt.schemas:
                rebuilt.put_version(subject, version, version_state)
            else:
                yield f"the subject {subject!r} has the schema {version_state.schema_id}, which is not there"
