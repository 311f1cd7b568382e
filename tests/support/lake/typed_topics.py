"""Topics whose records become typed columns of their tables, by Confluent's serializers."""

import json
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog

from tests.support.lake.archived_topics import LakeTopic
from tests.support.services.local_services import Penstock


class TypedTopics:
    """A broker whose registry takes any schema, and topics whose records become columns."""

    def __init__(self, broker: Penstock, registry: SchemaRegistryClient) -> None:
        self.broker = broker
        self.registry = registry
        self.registry.set_compatibility(level="NONE")
        self.catalog = RestCatalog("penstock", uri=f"http://{self.broker.http}/iceberg")
        self._producer = Producer({"bootstrap.servers": self.broker.bootstrap})

    def create(self, name: str, columns: str) -> LakeTopic:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        topic = NewTopic(name, num_partitions=1, config={"penstock.table.columns": columns})
        admin.create_topics([topic])[name].result(30)
        return LakeTopic(broker=self.broker, name=name, rows=[])

    def send(self, topic: LakeTopic, *values: bytes | None, key: bytes | None = None) -> None:
        """Produce to partition 0 and archive."""
        for value in values:
            self._producer.produce(topic.name, value, key, 0)
            topic.rows.append((0, len(topic.rows), key, value))
        assert self._producer.flush(30) == 0
        topic.archive()

    def rows(self, topic: LakeTopic) -> list[dict[str, Any]]:
        """The table's typed columns, without what is null, by PyIceberg."""
        table = self.catalog.load_table(("lake", topic.name)).scan().to_arrow().sort_by("offset")
        names = [name for name in table.column_names if name.startswith(("value_", "key_", "error"))]
        return [{name: row[name] for name in names if row[name] is not None} for row in table.to_pylist()]

    def close(self) -> None:
        self.catalog.close()


def avro(topics: TypedTopics, topic: LakeTopic, value: dict[str, Any], *fields: dict[str, Any]) -> bytes:
    """A value that Confluent's serializer encodes; it registers the schema of these fields."""
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    data = AvroSerializer(topics.registry, schema)(value, SerializationContext(topic.name, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def field(name: str, kind: object, **more: object) -> dict[str, Any]:
    """A field of an Avro record."""
    return {"name": name, "type": kind, **more}
