"""The schema registry as Confluent's own client for Python uses it, with its serializers of all three formats."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from agent.schemas.protobuf import compile_text
from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.shared_agents import SharedBroker
from tests.support.services.local_services import PenstockFactory

AVRO, JSON, PROTOBUF = (SerializationContext(topic, MessageField.VALUE) for topic in ("avro", "json", "protobuf"))
FIELD = '{"name": "f%d", "type": ["null", "int"], "default": null}'


@contextmanager
def client_of(http: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{http}/schema-registry", "max.retries": 0}) as client:
        yield client


def test_a_client_without_the_path_is_told_it(shared_broker: SharedBroker) -> None:
    with SchemaRegistryClient({"url": f"http://{shared_broker().http}", "max.retries": 0}) as client:
        with pytest.raises(SchemaRegistryError, match="the URL http://HOST:PORT/schema-registry") as caught:
            client.register_schema("orders-value", record('{"name": "x", "type": "int"}'))
        assert caught.value.http_status_code == 404


def record(*fields: str) -> Schema:
    return Schema(f'{{"type": "record", "name": "Order", "fields": [{", ".join(fields)}]}}', "AVRO")


def refused(call: Callable[[], object]) -> int:
    """The code of the error that a call ends with."""
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return int(caught.value.error_code)


def classes_of(**texts: str) -> dict[str, Any]:
    """Python's classes of the messages `M` of these files, each of which may import the ones before."""
    pool, added, known, found = DescriptorPool(), set[str](), dict[str, str](), dict[str, Any]()
    for stem, text in texts.items():
        *imported, file = compile_text(text, known).values()
        file.name = f"{stem}.proto"
        for each in (*imported, file):
            if each.name not in added:
                pool.Add(each)
                added.add(each.name)
        known[file.name] = text
        found[stem] = GetMessageClass(pool.FindMessageTypeByName(f"{stem}.M"))
    return found


def test_avro_records_go_through_serializer_and_deserializer(shared_broker: SharedBroker) -> None:
    with client_of(shared_broker().http) as client:
        schema = record('{"name": "id", "type": "long"}', '{"name": "note", "type": "string", "default": "none"}')
        assert schema.schema_str is not None
        data = AvroSerializer(client, schema.schema_str)({"id": 7, "note": "ü"}, AVRO)
        assert AvroDeserializer(client)(data, AVRO) == {"id": 7, "note": "ü"}
        assert client.get_latest_version("avro-value").version == 1
        assert refused(lambda: client.register_schema("avro-value", record('{"name": "x", "type": "int"}'))) == 409


def test_json_values_go_through_serializer_and_deserializer(shared_broker: SharedBroker) -> None:
    with client_of(shared_broker().http) as client:
        text = '{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
        data = JSONSerializer(text, client)({"id": 7}, JSON)
        assert JSONDeserializer(None, schema_registry_client=client)(data, JSON) == {"id": 7}
        found = client.get_latest_version("json-value")
        assert found.schema.schema_type == "JSON"


def test_protobuf_messages_go_through_serializer_and_deserializer_with_what_they_import(
    shared_broker: SharedBroker,
) -> None:
    texts = {
        "money": 'syntax = "proto3"; package money; message M { int64 cents = 1; }',
        "order": 'syntax = "proto3"; package order; import "money.proto"; import "google/protobuf/timestamp.proto";'
        "message M { int64 id = 1; money.M price = 2; google.protobuf.Timestamp at = 3; }",
    }
    classes = classes_of(**texts)
    with client_of(shared_broker().http) as client:
        serialize = ProtobufSerializer(classes["order"], client)
        message = classes["order"](id=7, price=classes["money"](cents=99))
        data = serialize(message, PROTOBUF)
        deserialize = ProtobufDeserializer(classes["order"], schema_registry_client=client)
        assert deserialize(data, PROTOBUF) == message
        found = client.get_latest_version("protobuf-value")
        assert found.schema.references == [SchemaReference("money.proto", "money.proto", 1)]
        # The text of the same file is the same schema.
        money = client.lookup_schema("money.proto", Schema(texts["money"], "PROTOBUF"))
        assert money.version == 1
        assert refused(lambda: client.delete_subject("money.proto")) == 42206


def test_what_the_client_can_ask_is_answered(penstock: PenstockFactory) -> None:
    with client_of(penstock().http) as client:
        one, two = record(FIELD % 1), record(FIELD % 1, FIELD % 2)
        first = client.register_schema("a/b c", one)
        assert client.register_schema("other", one) == first
        second = client.register_schema("a/b c", two)
        assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
        assert client.get_contexts() == ["."]
        assert client.get_subjects() == ["a/b c", "other"]
        assert client.get_subjects(subject_prefix="o") == ["other"]
        assert client.get_versions("a/b c") == [1, 2]
        assert client.get_versions("a/b c", offset=1, limit=1) == [2]
        assert client.get_subjects_by_schema_id(first) == ["a/b c", "other"]
        assert [(each.subject, each.version) for each in client.get_schema_versions(first)] == [
            ("a/b c", 1),
            ("other", 1),
        ]
        assert client.lookup_schema("a/b c", two).version == 2
        found = client.get_version("a/b c", 2)
        assert (found.schema_id, found.guid is not None) == (second, True)
        assert found.guid is not None
        assert client.get_schema_by_guid(found.guid).schema_str == found.schema.schema_str
        assert client.test_compatibility("a/b c", record('{"name": "x", "type": "int"}')) is False
        assert client.test_compatibility_all_versions("a/b c", record(FIELD % 3)) is True
        refers = Schema('["null", "Order"]', "AVRO", [SchemaReference("Order", "other", 1)])
        third = client.register_schema("refers", refers)
        assert client.get_referenced_by("other", 1) == [third]
        assert client.set_compatibility("a/b c", "NONE")["compatibility"] == "NONE"  # type: ignore[index]
        assert client.get_compatibility("a/b c") == "NONE"
        assert client.get_compatibility() == "BACKWARD"
        assert client.register_schema("a/b c", record('{"name": "x", "type": "int"}')) > third
        client.delete_config("a/b c")
        assert refused(lambda: client.get_compatibility("a/b c")) == 40408
        assert client.update_mode("a/b c", "READONLY") is not None
        assert refused(lambda: client.delete_version("a/b c", 3)) == 42205
        client.delete_mode("a/b c")
        assert client.delete_version("a/b c", 3) == 3
        assert client.delete_version("a/b c", 3, permanent=True) == 3
        assert client.delete_subject("a/b c") == [1, 2]
        assert client.delete_subject("a/b c", permanent=True) == [1, 2]
        assert refused(lambda: client.get_versions("a/b c")) == 40401
        assert refused(lambda: client.register_schema("bad", Schema("{", "AVRO"))) == 42201


def test_schemas_come_from_another_registry_with_their_ids(penstock: PenstockFactory) -> None:
    with client_of(penstock().http) as client:
        client.update_global_mode("IMPORT")
        assert client.get_global_mode() == "IMPORT"
        given = '"string"'
        client._rest_client.post("subjects/s/versions", {"schema": given, "id": 4711, "version": 3})
        client.update_global_mode("READWRITE")
        assert client.get_schema(4711).schema_str == given
        assert client.register_schema("s", Schema('"bytes"', "AVRO")) == 4712
        assert client.get_versions("s") == [3, 4]


def test_a_restart_keeps_ids_versions_and_settings(penstock: PenstockFactory) -> None:
    broker = penstock()
    with client_of(broker.http) as client:
        schema_id = client.register_schema("s", record(FIELD % 1))
        client.set_compatibility("s", "FULL")
    broker.process.kill()
    with client_of(penstock(data=broker.data).http) as client:
        assert client.lookup_schema("s", record(FIELD % 1)).schema_id == schema_id
        assert client.get_compatibility("s") == "FULL"
        assert client.register_schema("s", record(FIELD % 1, FIELD % 2)) == schema_id + 1


def test_of_two_agents_that_race_on_a_subject_each_goes_with_what_the_other_registered(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters()
    with client_of(cluster.start("a").http) as one, client_of(cluster.start("b").http) as other:
        one.set_compatibility(None, "FULL_TRANSITIVE")
        # Every one goes with none of the others, so that of each pair that race on a subject one has to lose.
        pairs = [
            (record('{"name": "x", "type": "int"}'), record('{"name": "y", "type": "string"}')),
            (record('{"name": "x", "type": "string"}'), record('{"name": "x", "type": "int"}')),
        ]
        for number in range(6):
            subject, pair = f"s{number}", pairs[number % 2]
            with ThreadPoolExecutor(2) as threads:
                tries = [
                    threads.submit(client.register_schema, subject, schema)
                    for client, schema in zip((one, other), pair, strict=True)
                ]
            errors = [each.exception() for each in tries]
            lost = [error for error in errors if error is not None]
            assert len(lost) == 1
            assert isinstance(lost[0], SchemaRegistryError)
            assert lost[0].error_code == 409
            assert one.get_versions(subject) == other.get_versions(subject) == [1]
        with ThreadPoolExecutor(2) as threads:
            ids = [
                threads.submit(client.register_schema, "shared", record(*(FIELD % each for each in range(count))))
                for count in range(1, 7)
                for client in (one, other)
            ]
        given = [each.result() for each in ids]
        assert given[::2] == given[1::2]
        assert one.get_versions("shared") == list(range(1, 7))
        assert {one.get_version("shared", version).schema_id for version in range(1, 7)} == set(given)
