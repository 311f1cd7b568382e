"""The shape of schemas and subjects in entries and snapshots. Part of `coordinator.codec.command_wire`.

Rule: as there: tags are never given twice, and fields only ever added at the end, with a default. In a snapshot
everything is in order of ids, subjects and versions.
"""

from typing import Annotated, assert_never

from msgspec import Meta

from coordinator.commands.field_types import Natural
from coordinator.commands.forms import WireStruct
from coordinator.commands.registry import (
    Compatibility,
    DeleteVersions,
    RegisterSchema,
    RegistryCommand,
    RegistryMode,
    SchemaContent,
    SchemaReference,
    SchemaType,
    SetCompatibility,
    SetMode,
)
from coordinator.ledger.port import LedgerCorrupt
from coordinator.state.registry import Registry, SubjectState, VersionState

Id = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
"""Of a schema, or a version of a subject."""
Code = Annotated[int, Meta(ge=0, le=127)]
WireReferences = list[tuple[str, str, Id]]
"""Name, subject, version."""


class WireSchemaContent(WireStruct, frozen=True):
    schema_type: Code
    text: str
    references: WireReferences = []

    def content(self) -> SchemaContent:
        """Raises `ValueError` for a type that this program does not know."""
        return SchemaContent(
            schema_type=SchemaType(self.schema_type),
            text=self.text,
            references=tuple(
                SchemaReference(name=name, subject=subject, version=version)
                for name, subject, version in self.references
            ),
        )


class WireRegisterSchema(WireStruct, frozen=True, tag=60):
    subject: str
    content: WireSchemaContent
    checked_at: Natural
    checked_as: Code
    schema_id: Id | None = None
    version: Id | None = None

    def command(self) -> RegisterSchema:
        try:
            return RegisterSchema(
                subject=self.subject,
                content=self.content.content(),
                checked_at=self.checked_at,
                checked_as=Compatibility(self.checked_as),
                schema_id=self.schema_id,
                version=self.version,
            )
        except ValueError as error:
            raise LedgerCorrupt(f"a schema cannot be read: {error}") from error


class WireDeleteVersions(WireStruct, frozen=True, tag=61):
    subject: str
    version: Id | None
    is_permanent: bool

    def command(self) -> DeleteVersions:
        return DeleteVersions(subject=self.subject, version=self.version, is_permanent=self.is_permanent)


class WireSetCompatibility(WireStruct, frozen=True, tag=62):
    subject: str
    compatibility: Code | None

    def command(self) -> SetCompatibility:
        try:
            compatibility = None if self.compatibility is None else Compatibility(self.compatibility)
        except ValueError as error:
            raise LedgerCorrupt(f"a compatibility cannot be read: {error}") from error
        return SetCompatibility(subject=self.subject, compatibility=compatibility)


class WireSetMode(WireStruct, frozen=True, tag=63):
    subject: str
    mode: Code | None
    is_forced: bool

    def command(self) -> SetMode:
        try:
            mode = None if self.mode is None else RegistryMode(self.mode)
        except ValueError as error:
            raise LedgerCorrupt(f"a mode of the registry cannot be read: {error}") from error
        return SetMode(subject=self.subject, mode=mode, is_forced=self.is_forced)


WireRegistryCommand = WireRegisterSchema | WireDeleteVersions | WireSetCompatibility | WireSetMode


def registry_command_to_wire(command: RegistryCommand) -> WireRegistryCommand:
    match command:
        case RegisterSchema():
            return WireRegisterSchema(
                command.subject,
                _content_to_wire(command.content),
                command.checked_at,
                int(command.checked_as),
                command.schema_id,
                command.version,
            )
        case DeleteVersions():
            return WireDeleteVersions(command.subject, command.version, command.is_permanent)
        case SetCompatibility():
            code = None if command.compatibility is None else int(command.compatibility)
            return WireSetCompatibility(command.subject, code)
        case SetMode():
            return WireSetMode(command.subject, None if command.mode is None else int(command.mode), command.is_forced)
        case _:
            assert_never(command)


class WireRegistry(WireStruct, frozen=True):
    """The registry in a snapshot."""

    schema_id_next: int = 1
    changes_count: int = 0
    schemas: list[tuple[int, WireSchemaContent]] = []
    subjects: list[tuple[str, int, list[tuple[int, int, bool]]]] = []
    """Subject, when it changed last, and of each version its number, its schema's id and whether it is deleted."""
    compatibilities: list[tuple[str, int]] = []
    modes: list[tuple[str, int]] = []

    def registry(self) -> Registry:
        """Raises `ValueError` or `KeyError` for one that contradicts itself."""
        registry = Registry()
        for schema_id, wire in self.schemas:
            registry.add_schema(schema_id, wire.content())
        for subject, changed_at, versions in self.subjects:
            registry.subjects[subject] = SubjectState(changed_at=changed_at)
            for version, schema_id, is_deleted in versions:
                registry.put_version(subject, version, VersionState(schema_id=schema_id, is_deleted=is_deleted))
        registry.schema_id_next = self.schema_id_next
        registry.changes_count = self.changes_count
        registry.compatibilities = {subject: Compatibility(code) for subject, code in self.compatibilities}
        registry.modes = {subject: RegistryMode(code) for subject, code in self.modes}
        return registry


REGISTRY_WIRE_SHAPES = (WireRegistry, WireSchemaContent)


def registry_to_wire(registry: Registry) -> WireRegistry:
    return WireRegistry(
        schema_id_next=registry.schema_id_next,
        changes_count=registry.changes_count,
        schemas=[(schema_id, _content_to_wire(content)) for schema_id, content in sorted(registry.schemas.items())],
        subjects=[
            (
                subject,
                state.changed_at,
                [(version, found.schema_id, found.is_deleted) for version, found in state.versions.items()],
            )
            for subject, state in sorted(registry.subjects.items())
        ],
        compatibilities=[(subject, int(value)) for subject, value in sorted(registry.compatibilities.items())],
        modes=[(subject, int(value)) for subject, value in sorted(registry.modes.items())],
    )


def _content_to_wire(content: SchemaContent) -> WireSchemaContent:
    references = [(each.name, each.subject, each.version) for each in content.references]
    return WireSchemaContent(int(content.schema_type), content.text, references)
