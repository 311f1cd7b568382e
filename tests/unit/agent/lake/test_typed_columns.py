"""Which typed columns passes give to a topic's table: by its config, and by what the registry holds."""

import json
import logging
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.lake.table_rebuild import TableRebuild
from agent.lake.typed_columns import TypedColumnsOfTopics
from coordinator.commands.commands import CreateTopic
from coordinator.commands.registry import (
    DeleteVersions,
    SchemaReference,
    SchemaType,
)
from iceberg_export.parquet import archive_file
from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.rows.schema import COLUMNS
from iceberg_export.tables.columns import columns_of
from iceberg_export.typed.decode import ValueReader
from iceberg_export.typed.schema_data import SchemaData
from protocol.types import TopicId
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import ArchiverOfBefore, archiver, produce
from tests.support.lake.compaction import FILES, file_compactor, served
from tests.support.lake.registered_schemas import names_of, register, table_of
from tests.support.lake.table_files import files_of_log, live_files
from tests.support.lake.typed_records import avro_bytes, framed, record

ORDER = record("Order", ("id", "int"))
NO_FRAME = "it does not begin with a byte 0 and the id of a schema"


async def rows_of(parts: Parts, store: MemoryStore) -> list[dict[str, Any]]:
    """Typed columns of all files' rows, without what is null."""
    rows: list[dict[str, Any]] = []
    for key in files_of_log(parts):
        table = pq.read_table(pa.BufferReader(await store.get(key)))
        names = table.column_names[len(COLUMNS) :]
        rows += [{name: row[name] for name in names if row[name] is not None} for row in table.to_pylist()]
    return rows


async def test_a_topic_has_the_columns_of_the_schemas_of_its_records() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        money = await register(parts, json.dumps(record("Money", ("cents", "long"))), subject="money")
        avro = await register(
            parts,
            json.dumps(record("Order", ("id", "int"), ("price", "Money"))),
            SchemaType.AVRO,
            SchemaReference(name="Money", subject="money", version=1),
        )
        text = await register(parts, '{"type":"object","properties":{"id":{"type":"string"}}}', SchemaType.JSON)
        message = await register(parts, 'syntax = "proto3"; message M { bool ok = 1; }', SchemaType.PROTOBUF)
        bad = await register(parts, '{"type":"array","items":"null"}')
        money_reference = SchemaReference(name="Money", subject="money", version=1)
        mixed = await register(parts, '{"type":"string"}', SchemaType.JSON, money_reference)
        assert len({money, avro, text, message, bad, mixed}) == 6
        values = [
            framed(avro, b"\x02\x04"),
            framed(text, b'{"id":"x"}'),
            framed(message, b"\0\x08\x01"),
            framed(message, b"\x02\x02"),
            framed(message, b"\x02"),
            framed(bad, b"\0"),
            framed(mixed, b"\0"),
            framed(99, b"\0"),
            b"plain",
            None,
        ]
        await produce(parts, store, 0, values=values)
        lake = lake_of(parts, store)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        rows = await rows_of(parts, store)
        assert rows[:3] == [{"value_id": 1, "value_price": {"cents": 2}}, {"value_id_2": "x"}, {"value_ok": True}]
        assert [list(row) for row in rows[3:]] == [["error"]] * 6 + [[]]
        assert [row["error"].removeprefix("value: ") for row in rows[3:9]] == [
            f"schema {message}: the Protobuf schema has no message with the indexes [1]",
            "the indexes of the Protobuf message are cut off, or too large",
            f"schema {bad}: the items of a list have no bytes, so its length has no limit",
            f"schema {mixed}: 'Money' is a schema of the type AVRO, which one of the type JSON cannot refer to",
            "schema 99: it is not registered",
            NO_FRAME,
        ]
        names = await names_of(parts, store)
        assert names == [("error", 11), ("value_id", 100), ("value_price", 101), ("value_id_2", 103), ("value_ok", 104)]
        assert (await table_of(parts, store)).last_column_id == 104
        # What is known stays ready, and the columns with it.
        await produce(parts, store, 1, values=values[:2])
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert await names_of(parts, store) == names
        assert [one.schema_id for one in (await table_of(parts, store)).snapshots] == [1, 1]


@pytest.mark.parametrize(
    ("subject", "is_shown"),
    [
        ("t-value", True),
        ("t-key", True),
        ("t-Order", True),  # as TopicRecordNameStrategy names them
        ("t-3-Order", True),
        ("t-2-value", False),  # of the topic t-2
        ("t-2-Order", False),
        ("t-3-value", False),  # of the topic t-3, once it is there
        ("other-value", False),
        ("Order", False),
        ("t", False),
    ],
)
async def test_where_rights_hold_a_table_shows_schemas_of_its_own_subjects_alone(subject: str, is_shown: bool) -> None:
    """Who writes to a topic could otherwise read any schema in its table, by the id in a record."""
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        await parts.ledger.propose(create("t-2", topic_id=TopicId(b"t-2" * 5 + b"-")))
        assert "t-2" in parts.ledger.state.topic_ids
        schema_id = await register(parts, json.dumps(ORDER), subject=subject)
        await produce(parts, store, 0, values=[framed(schema_id, b"\x02")])
        await archiver(parts, store, is_authorizer_enabled=True).archive_topic(TOPIC)
        error = f"value: schema {schema_id}: it is of no subject of this topic: register it as TOPIC-value or TOPIC-key"
        assert await rows_of(parts, store) == [{"value_id": 1} if is_shown else {"error": error}]
        lake = lake_of(parts, store)
        for is_own, shown in ((True, is_shown), (False, True)):
            plan = await TypedColumnsOfTopics(ledger=parts.ledger, lake=lake, are_subjects_own=is_own).plan(TOPIC)
            assert plan is not None
            assert isinstance(plan.schemas[schema_id], SchemaData) is shown


async def test_keys_are_columns_where_the_config_says_so_and_values_are_not_then() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="key"))
        await produce(parts, store, 0, values=[b"plain"])
        await archiver(parts, store).archive_topic(TOPIC)
        assert await rows_of(parts, store) == [{"error": f"key: {NO_FRAME}"}]
        assert await names_of(parts, store) == [("error", 11)]


@pytest.mark.parametrize("command", [create(), create(penstock_table_columns="raw")])
async def test_a_topic_whose_config_says_nothing_else_has_raw_columns_alone(command: CreateTopic) -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(command)
        schema_id = await register(parts, json.dumps(ORDER))
        await produce(parts, store, 0, values=[framed(schema_id, avro_bytes(ORDER, {"id": 1}))])
        await archiver(parts, store).archive_topic(TOPIC)
        assert await names_of(parts, store) == []
        assert columns_of(await table_of(parts, store)) is None
        assert await rows_of(parts, store) == [{}]


async def test_a_table_is_made_again_of_files_with_the_columns_that_they_have() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, json.dumps(ORDER))
        await produce(parts, store, 0, values=[framed(schema_id, avro_bytes(ORDER, {"id": 1}))])
        before = lake_of(parts, store)
        await ArchiverOfBefore(archiver(parts, store, before)).archive_topic(TOPIC)
        assert parts.ledger.state.topics[TOPIC].table is None
        lake = lake_of(parts, store)
        lake._number_next = before._number_next
        name = await lake.name()
        async with lake.turn(TOPIC):
            assert await lake.complete(TOPIC, name.session)
        assert await names_of(parts, store) == [("error", 11), ("value_id", 100)]
        wider = record("Order", ("id", "long"), ("n", "int"))
        schema_id = await register(parts, json.dumps(wider))
        await produce(parts, store, 1, values=[framed(schema_id, avro_bytes(wider, {"id": 2, "n": 3}))])
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert await names_of(parts, store) == [("error", 11), ("value_id", 100), ("value_n", 101)]
        assert await rows_of(parts, store) == [{"value_id": 1}, {"value_id": 2, "value_n": 3}]


async def test_a_table_that_is_begun_again_has_the_columns_of_its_newest_file() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, json.dumps(ORDER))
        lake = lake_of(parts, store)
        await produce(parts, store, 0, values=[framed(schema_id, avro_bytes(ORDER, {"id": 1}))])
        await archiver(parts, store, lake).archive_topic(TOPIC)
        wider = record("Order", ("id", "long"), ("n", "int"))
        schema_id = await register(parts, json.dumps(wider))
        await produce(parts, store, 1, values=[framed(schema_id, avro_bytes(wider, {"id": 2, "n": 3}))])
        await archiver(parts, store, lake).archive_topic(TOPIC)
        names, columns = await names_of(parts, store), columns_of(await table_of(parts, store))
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        await store.put(table.metadata_key, (b"junk",))
        await TableRebuild(ledger=parts.ledger, lake=lake).rebuild(TOPIC)
        assert await names_of(parts, store) == names
        assert columns_of(await table_of(parts, store)) == columns
        await produce(parts, store, 2, values=[framed(schema_id, avro_bytes(wider, {"id": 4, "n": 5}))])
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert (await rows_of(parts, store))[-1] == {"value_id": 4, "value_n": 5}


async def test_who_reads_raw_columns_reads_none_of_the_others() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, json.dumps(ORDER))
        await produce(parts, store, 0, values=[framed(schema_id, avro_bytes(ORDER, {"id": n})) for n in range(50)])
        await archiver(parts, store).archive_topic(TOPIC)
        (key,) = files_of_log(parts)
        data = await store.get(key)
        footer = read_footer(data)
        (place,) = footer.row_groups
        group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
        paths = [group.column(index).path_in_schema.partition(".")[0] for index in range(group.num_columns)]
        assert paths[-2:] == ["error", "value_id"]
        typed = group.column(group.num_columns - 2)
        first = typed.dictionary_page_offset or typed.data_page_offset
        assert place.byte_first + place.byte_count <= first


async def test_a_file_whose_columns_were_overtaken_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, json.dumps(ORDER))
        wider = record("Order", ("id", "int"), ("n", "int"))
        wide = await register(parts, json.dumps(wider))
        await produce(parts, store, 0, values=[framed(schema_id, avro_bytes(ORDER, {"id": 1}))])
        other = lake_of(parts, store)
        overtaken = archiver(parts, store, other)
        columns = other.columns

        async def stale(topic_id: Any) -> Any:  # noqa: ANN401
            """What the table had before somebody else's commit."""
            other.columns = columns  # type: ignore[method-assign]
            return None

        await overtaken.archive_topic(TOPIC)
        await produce(parts, store, 1, values=[framed(wide, avro_bytes(wider, {"id": 2, "n": 3}))])
        other.columns = stale  # type: ignore[method-assign]
        with caplog.at_level(logging.INFO, "agent.lake.archiver"):
            await overtaken.archive_topic(TOPIC)
        (reason,) = [vars(line)["reason"] for line in caplog.records if "reason" in vars(line)]
        assert "typed columns of the table: version 2, but the file was made for none" in reason
        assert [row["value_id"] for row in await rows_of(parts, store)] == [1, 2]


async def test_a_merge_of_files_keeps_their_columns_and_gives_them_to_older_records() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        lake = lake_of(parts, store)
        narrow = await register(parts, json.dumps(ORDER))
        wider = record("Order", ("id", "long"), ("n", "int"))
        wide = await register(parts, json.dumps(wider))
        configs = parts.ledger.state.topics[TOPIC].configs
        for number in range(FILES):
            is_raw, is_wide = number == 0, number > FILES // 2
            schema, value = (wider, {"id": number, "n": 3}) if is_wide else (ORDER, {"id": number})
            configs["penstock.table.columns"] = "raw" if is_raw else "value"
            data = framed(wide if is_wide else narrow, avro_bytes(schema, value))
            await produce(parts, store, number, values=[data, b"plain"])
            await archiver(parts, store, lake).archive_topic(TOPIC)
        configs["penstock.table.columns"] = "raw"
        before = await names_of(parts, store)
        assert before == [("error", 11), ("value_id", 100), ("value_n", 101)]
        merged = await file_compactor(parts, store, lake).compact(TOPIC)
        assert merged is not None
        assert await names_of(parts, store) == before
        (file,) = await live_files(parts, store)
        rows = pq.read_table(pa.BufferReader(await store.get(file.file.key))).to_pylist()
        assert [row["value_id"] for row in rows[::2]] == list(range(FILES))
        assert [row["value_n"] for row in rows[::2]] == [3 if number > FILES // 2 else None for number in range(FILES)]
        assert {row["error"] for row in rows[1::2]} == {f"value: {NO_FRAME}"}


async def test_files_whose_schema_is_gone_are_not_merged_and_keep_their_values() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        lake = lake_of(parts, store)
        schema_id = await register(parts, json.dumps(ORDER))
        for number in range(FILES):
            await produce(parts, store, number, values=[framed(schema_id, avro_bytes(ORDER, {"id": number}))])
            await archiver(parts, store, lake).archive_topic(TOPIC)
        for is_permanent in (False, True):
            await parts.ledger.propose(DeleteVersions(subject="s", version=1, is_permanent=is_permanent))
        assert schema_id not in parts.ledger.state.registry.schemas
        compacting = file_compactor(parts, store, lake)
        assert await compacting.compact(TOPIC) is None
        assert await compacting.compact(TOPIC) is None
        assert await rows_of(parts, store) == [{"value_id": number} for number in range(FILES)]
        assert len(files_of_log(parts)) == FILES


def avro_of(*fields: tuple[str, str | None]) -> dict[str, Any]:
    """A record of ints, by name and alias."""
    made = [{"name": name, "type": "int", **({"aliases": [alias]} if alias else {})} for name, alias in fields]
    return {"type": "record", "name": "R", "fields": made}


async def test_no_schemas_stop_a_pass_whatever_they_rename() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schemas = [
            avro_of(("a", None)),
            avro_of(("b", "a")),
            avro_of(("a", None), ("b", None)),
            avro_of(("c", "a")),
            avro_of(("c", None), ("d", "a")),
        ]
        values: list[bytes] = []
        for number, schema in enumerate(schemas):
            schema_id = await register(parts, json.dumps(schema), subject=f"s{number}")
            values.append(framed(schema_id, avro_bytes(schema, {each["name"]: 1 for each in schema["fields"]})))
        await produce(parts, store, 0, values=values)
        await archiver(parts, store).archive_topic(TOPIC)
        assert len(await rows_of(parts, store)) == len(schemas)


async def test_a_value_that_its_library_cannot_show_stops_no_pass() -> None:
    """Messages deeper than columns go become JSON, whose keys are texts: Protobuf's may be booleans."""
    deep = "".join(f"message A{depth} {{ A{depth + 1} a = 1; }} " for depth in range(11))
    text = f'syntax = "proto3"; {deep}message A11 {{ map<bool, N> m = 1; }} message N {{ int32 x = 1; }}'
    data = b"\x0a\x06\x08\x01\x12\x02\x08\x05"
    for _ in range(11):
        data = b"\x0a" + bytes([len(data)]) + data
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, text, SchemaType.PROTOBUF)
        await produce(parts, store, 0, values=[framed(schema_id, b"\0" + data), framed(schema_id, b"\0")])
        await archiver(parts, store).archive_topic(TOPIC)
        (bad, good) = await rows_of(parts, store)
        assert "error" in bad
        assert "error" not in good


async def test_a_schema_that_its_library_cannot_read_stops_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(_: SchemaData) -> ValueReader:
        raise OverflowError("int too large to convert")

    monkeypatch.setattr("iceberg_export.typed.readers.make_ready", overflow)
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        schema_id = await register(parts, json.dumps(record("R", ("a", "int"))))
        await produce(parts, store, 0, values=[framed(schema_id, b"x")])
        await archiver(parts, store).archive_topic(TOPIC)
        (row,) = await rows_of(parts, store)
        assert "OverflowError: int too large" in row["error"]


async def test_rows_of_many_typed_columns_are_divided_into_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_file, "TYPED_CELLS_MAX", 20)
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create(penstock_table_columns="value"))
        wide = record("R", ("a", "int"), ("b", "int"))
        schema_id = await register(parts, json.dumps(wide))
        rows = [framed(schema_id, avro_bytes(wide, {"a": number, "b": 1})) for number in range(25)]
        await produce(parts, store, 0, values=rows)
        await archiver(parts, store).archive_topic(TOPIC)
        (key,) = files_of_log(parts)
        groups = pq.read_metadata(pa.BufferReader(await store.get(key)))
        assert [groups.row_group(index).num_rows for index in range(groups.num_row_groups)] == [10, 10, 5]
        assert [row["value_a"] for row in await rows_of(parts, store)] == list(range(25))
        assert [record.offset for record in await served(parts, store)] == list(range(25))
