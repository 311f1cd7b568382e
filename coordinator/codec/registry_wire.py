"""The shape of schemas and subjects in snapshots. Commands about them are wire structs themselves:
`coordinator.commands.registry`.

Rule: everything is in order of ids, subjects and versions, so that equal states give equal bytes.
"""

from coordinator.commands.forms import WireStruct
from coordinator.commands.registry import Compatibility, RegistryMode, SchemaContent
from coordinator.state.registry import Registry, SubjectState, VersionState


class WireRegistry(WireStruct, frozen=True):
    """The registry in a snapshot."""

    schema_id_next: int = 1
    changes_count: int = 0
    schemas: list[tuple[int, SchemaContent]] = []
    subjects: list[tuple[str, int, list[tuple[int, int, bool]]]] = []
    """Subject, when it changed last, and of each version its number, its schema's id and whether it is deleted."""
    compatibilities: list[tuple[str, int]] = []
    modes: list[tuple[str, int]] = []

    def registry(self) -> Registry:
        """Raises `ValueError` or `KeyError` for one that contradicts itself."""
        registry = Registry()
        for schema_id, content in self.schemas:
            registry.add_schema(schema_id, content)
        for subject, changed_at, versions in self.subjects:
            registry.subjects[subject] = SubjectState(changed_at=changed_at)
            for version, schema_id, is_deleted in versions:
                registry.put_version(subject, version, VersionState(schema_id=schema_id, is_deleted=is_deleted))
        registry.schema_id_next = self.schema_id_next
        registry.changes_count = self.changes_count
        registry.compatibilities = {subject: Compatibility(code) for subject, code in self.compatibilities}
        registry.modes = {subject: RegistryMode(code) for subject, code in self.modes}
        return registry


def registry_to_wire(registry: Registry) -> WireRegistry:
    return WireRegistry(
        schema_id_next=registry.schema_id_next,
        changes_count=registry.changes_count,
        schemas=sorted(registry.schemas.items()),
        subjects=[
            (
                subject,
                state.changed_at,
                [
                    (version, version_state.schema_id, version_state.is_deleted)
                    for version, version_state in state.versions.items()
                ],
            )
            for subject, state in sorted(registry.subjects.items())
        ],
        compatibilities=[(subject, int(value)) for subject, value in sorted(registry.compatibilities.items())],
        modes=[(subject, int(value)) for subject, value in sorted(registry.modes.items())],
    )
