"""Records of Confluent's serializers as typed columns of their topic's table, through changes of their schemas."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from agent.schemas.protobuf import compile_text
from tests.support.lake.archiving import AT_ONCE
from tests.support.lake.typed_topics import TypedTopics, avro, field
from tests.support.services.local_services import PenstockFactory

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""Of what these clients leave open, and of what they use of each other."""


@pytest.fixture
def topics(penstock: PenstockFactory) -> Iterator[TypedTopics]:
    broker = penstock(options=AT_ONCE)
    with SchemaRegistryClient({"url": f"http://{broker.http}/schema-registry"}) as registry:
        made = TypedTopics(broker, registry)
        yield made
        made.close()


def test_columns_follow_the_schemas_of_all_formats(topics: TypedTopics) -> None:
    assert_avro(topics)
    assert_json(topics)
    assert_protobuf(topics)
    assert_keys(topics)


def assert_avro(topics: TypedTopics) -> None:
    topic = topics.create("avro", "value")
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    at = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    first = [field("id", "int"), field("price", price), field("at", moment)]
    written = avro(topics, topic, {"id": 1, "price": Decimal("12.34"), "at": at}, *first)
    topics.send(topic, written, None, b"plain", b"\0\0\0\xff\xffx", written[:-2])
    rows = topics.rows(topic)
    assert rows[0] == {"value_id": 1, "value_price": Decimal("12.34"), "value_at": at}
    assert rows[1] == {}
    assert [list(row) for row in rows[2:]] == [["error"]] * 3
    assert [row["error"] for row in rows[2:4]] == [
        "value: it does not begin with a byte 0 and the id of a schema",
        "value: schema 65535: it is not registered",
    ]
    # Widened, renamed by an alias, removed, added.
    second = [
        field("number", "long", aliases=["id"]),
        field("at", moment),
        field("tags", {"type": "array", "items": "string"}),
    ]
    topics.send(topic, avro(topics, topic, {"number": 1 << 40, "at": at, "tags": ["a"]}, *second))
    # A type that does not fit, and a producer that still has the first schema, in one pass.
    third = [field("number", "string")]
    topics.send(topic, avro(topics, topic, {"number": "seven"}, *third), written)
    rows = topics.rows(topic)
    assert rows[0] == {"value_number": 1, "value_price": Decimal("12.34"), "value_at": at}
    assert rows[5:] == [
        {"value_number": 1 << 40, "value_at": at, "value_tags": ["a"]},
        {"value_number_2": "seven"},
        rows[0],
    ]
    assert topic.consumed() == topic.rows
    table = topics.catalog.load_table(("lake", topic.name))
    assert [each.schema_id for each in table.metadata.snapshots] == [1, 2, 3]
    assert table.scan(row_filter="value_number > 5", selected_fields=("offset",)).to_arrow()["offset"].to_pylist() == [
        5
    ]
    old = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow()
    assert "value_id" in old.column_names
    assert "value_tags" not in old.column_names


def assert_json(topics: TypedTopics) -> None:
    topic = topics.create("json", "value")

    def written(value: dict[str, Any], **properties: object) -> bytes:
        text = json.dumps({"title": "Order", "type": "object", "properties": properties})
        data = JSONSerializer(text, topics.registry)(value, SerializationContext(topic.name, MessageField.VALUE))
        assert isinstance(data, bytes)
        return data

    integer, text = {"type": "integer"}, {"type": "string"}
    first = written(
        {"id": 1, "who": {"name": "x"}, "more": [1]},
        id=integer,
        who={"type": "object", "properties": {"name": text}},
        more={},
    )
    second = written({"id": "one", "who": {"age": 2}}, id=text, who={"type": "object", "properties": {"age": integer}})
    topics.send(topic, first)
    topics.send(topic, second, first[:-1], b'{"id": 1}')
    rows = topics.rows(topic)
    assert rows[:2] == [
        {"value_id": 1, "value_who": {"name": "x", "age": None}, "value_more": "[1]"},
        {"value_id_2": "one", "value_who": {"name": None, "age": 2}},
    ]
    assert [list(row) for row in rows[2:]] == [["error"]] * 2
    assert topic.consumed() == topic.rows


def assert_protobuf(topics: TypedTopics) -> None:
    topic = topics.create("protobuf", "value")

    def written(fields: str, **values: object) -> bytes:
        *imported, file = compile_text(f'syntax = "proto3"; package shop; message M {{ {fields} }}', {}).values()
        assert not imported
        pool = DescriptorPool()
        file.name = "m.proto"
        pool.Add(file)
        made = GetMessageClass(pool.FindMessageTypeByName("shop.M"))
        serializer = ProtobufSerializer(made, topics.registry, {"use.deprecated.format": False})
        data = serializer(made(**values), SerializationContext(topic.name, MessageField.VALUE))
        assert isinstance(data, bytes)
        return data

    first = written("int32 id = 1; string name = 2; oneof how { string card = 3; int64 voucher = 4; }", id=1, card="c")
    # Widened; renamed, with its number; removed; added; and of another type.
    second = written(
        "int64 id = 1; string title = 2; double card = 5; repeated int32 l = 6;", id=1 << 40, title="t", l=[3]
    )
    topics.send(topic, first, first[:5], first + b"\xff")
    topics.send(topic, second, first)
    rows = topics.rows(topic)
    assert [list(row) for row in rows[1:3]] == [["error"]] * 2
    assert rows[0] == {"value_id": 1, "value_title": "", "value_card": "c"}
    assert rows[3:] == [
        {"value_id": 1 << 40, "value_title": "t", "value_card_2": 0.0, "value_l": [3]},
        rows[0],
    ]
    assert topic.consumed() == topic.rows


def assert_keys(topics: TypedTopics) -> None:
    topic = topics.create("keys", "both")
    key = AvroSerializer(topics.registry, '"string"')("k", SerializationContext(topic.name, MessageField.KEY))
    value = avro(topics, topic, {"id": 1}, field("id", "int"))
    topics.send(topic, value, b"plain", key=key)
    topics.send(topic, value, key=b"plain")
    rows = topics.rows(topic)
    told = "it does not begin with a byte 0 and the id of a schema"
    assert rows == [
        {"key_content": "k", "value_id": 1},
        {"key_content": "k", "error": f"value: {told}"},
        {"value_id": 1, "error": f"key: {told}"},
    ]
