"""Registers schemas, and names the typed columns of files."""

import json
from typing import Any

from coordinator.commands.registry import (
    Compatibility,
    RegisterSchema,
    SchemaContent,
    SchemaReference,
    SchemaType,
)
from iceberg_export.rows.schema import COLUMNS
from iceberg_export.tables.metadata import TableMetadata
from iceberg_export.tables.table_reader import TableCache, TableReader
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import LAKE_ROOT, Parts
from tests.support.commands.commands import TOPIC
from tests.support.lake.table_fixtures import run_here


async def register(
    parts: Parts, text: str, kind: SchemaType = SchemaType.AVRO, *references: SchemaReference, subject: str = "s"
) -> int:
    """Returns the schema's id."""
    registry = parts.ledger.state.registry
    content = SchemaContent(schema_type=kind, text=text, references=references)
    command = RegisterSchema(
        subject=subject,
        content=content,
        checked_at=registry.changed_at(subject),
        checked_as=registry.compatibility(subject),
    )
    assert registry.compatibility(subject) is Compatibility.BACKWARD
    await parts.ledger.propose(command)
    return registry.ids_by_digest[content.digest]


async def table_of(parts: Parts, store: MemoryStore) -> TableMetadata:
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    reader = TableReader(root=LAKE_ROOT, store=store, cache=TableCache(), run_in_thread=run_here)
    return await reader.metadata(table.metadata_key)


async def names_of(parts: Parts, store: MemoryStore) -> list[tuple[str, int]]:
    """Names and ids of the current schema, behind the raw columns."""
    metadata = await table_of(parts, store)
    fields: list[dict[str, Any]] = json.loads(bytes(metadata.schemas[-1]))["fields"]
    return [(each["name"], each["id"]) for each in fields if each["name"] not in COLUMNS]
