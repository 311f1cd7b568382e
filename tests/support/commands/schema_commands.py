"""Commands about schemas as tests write them."""

from coordinator.commands.registry import (
    Compatibility,
    RegisterSchema,
    SchemaContent,
    SchemaReference,
    SchemaType,
)
from tests.support.commands.commands import Cluster


def content(text: str, *references: tuple[str, int]) -> SchemaContent:
    """A schema that refers to these subjects' versions; nothing of it is read by the coordinator."""
    return SchemaContent(
        schema_type=SchemaType.AVRO,
        text=text,
        references=tuple(
            SchemaReference(name=subject, subject=subject, version=version) for subject, version in references
        ),
    )


def register(
    cluster: Cluster,
    subject: str,
    schema: SchemaContent | str,
    *,
    schema_id: int | None = None,
    version: int | None = None,
    checked_at: int | None = None,
    checked_as: Compatibility | None = None,
) -> RegisterSchema:
    """As an agent proposes it that has seen all there is, unless it says otherwise."""
    registry = cluster.state.registry
    return RegisterSchema(
        subject=subject,
        content=content(schema) if isinstance(schema, str) else schema,
        checked_at=registry.changed_at(subject) if checked_at is None else checked_at,
        checked_as=registry.compatibility(subject) if checked_as is None else checked_as,
        schema_id=schema_id,
        version=version,
    )
