"""Records of Confluent's Avro serializer whose bytes a topic leaves out: every reader gets what was sent, as before."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.table import Table

from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from tests.support.lake.archived_topics import LakeTopic
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.lake.typed_topics import TypedTopics, avro, field
from tests.support.services.local_services import PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""Of what these clients leave open, and of what they use of each other."""
PASSES = 10
"""Whose files are worth a merge."""
SECONDS_MAX = 60
FIELDS = [
    field("id", "long"),
    field("tail", ["null", "string"]),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("share", "double"),
]


@pytest.fixture
def topics(penstock: PenstockFactory) -> Iterator[TypedTopics]:
    broker = penstock(options={"archive-interval-s": "3600"})
    with SchemaRegistryClient({"url": f"http://{broker.http}/schema-registry"}) as registry:
        made = TypedTopics(broker, registry)
        yield made
        made.close()


def create(topics: TypedTopics, name: str) -> LakeTopic:
    config = {"penstock.table.columns": "value", "penstock.table.raw.values": "irreproducible"}
    admin = AdminClient({"bootstrap.servers": topics.broker.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, config=config)])[name].result(30)
    return LakeTopic(broker=topics.broker, name=name, rows=[])


def keep_all(topics: TypedTopics, topic: LakeTopic) -> None:
    entry = ConfigEntry("penstock.table.raw.values", "always", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": topics.broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def flight(topics: TypedTopics, topic: LakeTopic, number: int) -> bytes:
    tail = None if number % 3 == 0 else f"N{number}"
    value = {"id": number << 30, "tail": tail, "kind": "AB"[number % 2], "at": 1_700_000_000_000, "share": -0.0}
    return avro(topics, topic, value, *FIELDS)


def files_of(topics: TypedTopics, topic: LakeTopic) -> int:
    return len(list(topics.catalog.load_table(("lake", topic.name)).scan().plan_files()))


def stored(topics: TypedTopics, topic: LakeTopic) -> list[tuple[bytes | None, bool, bool]]:
    """Of each row of the table its value, whether it is left out, and whether it has typed columns."""
    return stored_in(topics.catalog.load_table(("lake", topic.name)))


def stored_in(table: Table) -> list[tuple[bytes | None, bool, bool]]:
    rows = table.scan().to_arrow().sort_by("offset").select(["value", "schema_id", "value_id"]).to_pylist()
    return [(row["value"], row["schema_id"] is not None, row["value_id"] is not None) for row in rows]


def test_readers_get_the_values_that_a_table_leaves_out(topics: TypedTopics, spark: "SparkSession") -> None:
    from iceberg_export.spark.source import register

    topic = create(topics, "flights")
    others = [None, b"plain", flight(topics, topic, 1) + b"\0"]
    for number in range(PASSES):
        topics.send(topic, flight(topics, topic, number), *others)
    rows = stored(topics, topic)
    assert rows == [(None, True, True), (None, False, False), *((each, False, False) for each in others[1:])] * PASSES
    assert topic.consumed() == topic.rows
    merged = lambda: files_of(topics, topic) < PASSES  # noqa: E731
    topics.broker.process.wait_until(merged, "a merge of the table's files", seconds_max=SECONDS_MAX)
    assert stored(topics, topic) == rows
    assert topic.consumed() == topic.rows
    keep_all(topics, topic)
    topics.send(topic, last := flight(topics, topic, 99))
    kept = topics.catalog.load_table(("lake", topic.name))  # once: the next merge puts in what was left out before
    kept_rows = stored_in(kept)
    assert kept_rows[-1] == (last, False, True)
    assert topic.consumed() == topic.rows
    table = spark.read.format("iceberg").load(kept.metadata_location)
    assert table.where("value IS NULL AND schema_id IS NULL").count() == PASSES
    found = table.where("value IS NOT NULL").orderBy("offset").select("value").collect()
    assert [bytes(row.value) for row in found] == [each for each, *_ in kept_rows if each is not None]
    subject = f"{topic.name}-value"
    topics.registry.delete_subject(subject)
    topics.registry.delete_subject(subject, permanent=True)
    assert topic.consumed() == topic.rows
    url = f"file://{topics.broker.data}/store"
    lake = SparkLake(open_bucket(url, {}))

    def is_told() -> bool:
        found = topic_in_manifest(lake, topic.name)
        return found is not None and found.partitions[0].archived_end == len(topic.rows)

    topics.broker.process.wait_until(is_told, "the tail manifest", seconds_max=SECONDS_MAX)
    topics.broker.process.kill()
    register(spark)
    frame = spark.read.format("penstock").option("subscribe", topic.name).load(url)
    values = sorted((row.offset, row.value and bytes(row.value)) for row in frame.select("offset", "value").collect())
    assert values == [(offset, value) for _, offset, _, value in topic.rows]
