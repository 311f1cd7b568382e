"""Values whose bytes passes and merges leave out, by the topic's config: consumers get what was sent, at any time."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agent.lake.table_commits import TableCommits
from coordinator.commands.registry import DeleteVersions
from coordinator.configs.topic_configs import ALWAYS, IRREPRODUCIBLE, TABLE_COLUMNS, TABLE_RAW_VALUES
from iceberg_export.rows.schema import FieldId
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.compaction import FILES, file_compactor, served
from tests.support.lake.registered_schemas import names_of, register
from tests.support.lake.table_files import files_of_log, live_files
from tests.support.lake.typed_records import avro_bytes, framed, record

ORDER = record("Order", ("id", "int"), ("note", ["null", "string"]))
WIDER = record("Order", ("note", ["null", "string"]), ("id", "long"))
LEFT_OUT = create(penstock_table_columns="value", penstock_table_raw_values=IRREPRODUCIBLE)


def order(schema_id: int, number: int) -> bytes:
    return framed(schema_id, avro_bytes(ORDER, {"id": number, "note": f"n{number}" if number % 2 else None}))


async def file_rows(parts: Parts, store: MemoryStore) -> list[dict[str, Any]]:
    """Rows of all files, as they are stored."""
    return [
        row for key in files_of_log(parts) for row in pq.read_table(pa.BufferReader(await store.get(key))).to_pylist()
    ]


async def merged_rows(parts: Parts, store: MemoryStore, lake: TableCommits) -> list[dict[str, Any]]:
    """Rows of the file that the next merge makes, as they are stored."""
    merged = await file_compactor(parts, store, lake).compact(TOPIC)
    assert merged is not None
    rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(await store.get(merged.file.key))).to_pylist()
    return rows


async def consumed(parts: Parts, store: MemoryStore) -> list[bytes | None]:
    return [each.value for each in await served(parts, store)]


async def test_values_are_left_out_once_the_topic_asks_for_it() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        lake = lake_of(parts, store)
        schema_id = await register(parts, json.dumps(ORDER))
        values = [order(schema_id, 1), None, b"plain", order(schema_id, 2) + b"\0"]
        for number, raw_values in enumerate((ALWAYS, IRREPRODUCIBLE)):
            parts.ledger.state.topics[TOPIC].configs[TABLE_RAW_VALUES] = raw_values
            await produce(parts, store, number, values=values)
            await archiver(parts, store, lake).archive_topic(TOPIC)
        kept, left_out = (await file_rows(parts, store))[:4], (await file_rows(parts, store))[4:]
        assert [row["value"] for row in kept] == values
        assert [row["kept_value"] for row in left_out] == [None, *values[1:]]
        assert [row["schema_id"] for row in left_out] == [schema_id, None, None, None]
        assert await consumed(parts, store) == [*values, *values]
        assert [name for name, _ in await names_of(parts, store)] == ["error", "schema_id", "value_id", "value_note"]
        assert dict(await names_of(parts, store))["schema_id"] == 12
        assert [live.file.counts.nulls_of(FieldId.VALUE) for live in await live_files(parts, store)] == [1, 2]


async def test_a_topic_whose_values_are_no_columns_keeps_them() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="key", penstock_table_raw_values=IRREPRODUCIBLE))
        schema_id = await register(parts, json.dumps(ORDER))
        await produce(parts, store, 0, values=[order(schema_id, 1)])
        await archiver(parts, store).archive_topic(TOPIC)
        assert [row["value"] for row in await file_rows(parts, store)] == [order(schema_id, 1)]


async def test_merges_decide_again_by_the_config_of_their_time() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(LEFT_OUT)
        lake = lake_of(parts, store)
        narrow = await register(parts, json.dumps(ORDER))
        wide = await register(parts, json.dumps(WIDER), subject="wider")
        configs = parts.ledger.state.topics[TOPIC].configs
        sent: list[bytes | None] = []

        async def add(first: int) -> None:
            """Files with bytes of all values, and files without."""
            for number in range(first, first + FILES):
                configs[TABLE_RAW_VALUES] = ALWAYS if number % 3 == 0 else IRREPRODUCIBLE
                wider = framed(wide, avro_bytes(WIDER, {"id": (1 << 40) + number, "note": None}))
                values = [order(narrow, number), wider, b"plain", None]
                sent.extend(values)
                await produce(parts, store, number, values=values)
                await archiver(parts, store, lake).archive_topic(TOPIC)

        await add(0)
        configs[TABLE_RAW_VALUES] = IRREPRODUCIBLE
        rows = await merged_rows(parts, store, lake)
        assert len(rows) > 3 * 4, "files of either kind"
        for row in rows:
            wanted = ((None, narrow), (None, wide), (b"plain", None), (None, None))[row["offset"] % 4]
            assert (row["kept_value"], row["schema_id"]) == wanted
        assert await consumed(parts, store) == sent
        await add(FILES)
        configs[TABLE_RAW_VALUES] = ALWAYS
        rows = await merged_rows(parts, store, lake)
        assert len(rows) > 3 * 4
        assert [row["value"] for row in rows] == [sent[row["offset"]] for row in rows]
        assert await consumed(parts, store) == sent
        assert "schema_id" in [name for name, _ in await names_of(parts, store)]


async def test_a_merge_without_typed_columns_to_make_keeps_what_the_table_has() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(LEFT_OUT)
        lake = lake_of(parts, store)
        schema_id = await register(parts, json.dumps(ORDER))
        sent = [order(schema_id, number) for number in range(FILES)]
        for number, value in enumerate(sent):
            await produce(parts, store, number, values=[value])
            await archiver(parts, store, lake).archive_topic(TOPIC)
        configs = parts.ledger.state.topics[TOPIC].configs
        del configs[TABLE_COLUMNS], configs[TABLE_RAW_VALUES]
        rows = await merged_rows(parts, store, lake)
        assert [row["value"] for row in rows] == [sent[row["offset"]] for row in rows]
        assert [row["value_id"] for row in rows] == [row["offset"] for row in rows]
        assert await consumed(parts, store) == sent


async def test_consumers_get_values_of_schemas_that_were_deleted() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(LEFT_OUT)
        lake = lake_of(parts, store)
        schema_id = await register(parts, json.dumps(ORDER))
        sent = [order(schema_id, number) for number in range(FILES)]
        for number, value in enumerate(sent):
            await produce(parts, store, number, values=[value])
            await archiver(parts, store, lake).archive_topic(TOPIC)
        for is_permanent in (False, True):
            await parts.ledger.propose(DeleteVersions(subject="s", version=1, is_permanent=is_permanent))
        assert schema_id not in parts.ledger.state.registry.schemas
        assert {row["kept_value"] for row in await file_rows(parts, store)} == {None}
        assert await consumed(parts, store) == sent
        assert await file_compactor(parts, store, lake).compact(TOPIC) is None
        assert await consumed(parts, store) == sent
