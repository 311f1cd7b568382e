"""A topic is a table: read from the bucket alone, with no agent alive, and kept in step with the log."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from tests.support.client_libraries.deleted_records import delete_records
from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, PARTITIONS = "orders", 2
SECONDS_MAX = 60.0


def create(broker: Penstock, configs: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=dict(configs or {}))])[TOPIC].result(SECONDS_MAX)


def produce(broker: Penstock, first: int, count: int) -> None:
    """Records `first` to `first + count - 1`, dealt out to the partitions in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, key=b"k%d" % (number % 7), value=b"v%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0


def consumed(broker: Penstock, count: int) -> set[bytes]:
    """The values that a consumer gets."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found = consumer.consume(count, timeout=SECONDS_MAX)
    consumer.close()
    return {message.value() for message in found}  # type: ignore[misc]


def folder_of(broker: Penstock) -> Path:
    """Where the topic's table lies."""
    (found,) = (broker.data / "store" / "lake").glob(f"{TOPIC}-*")
    return found


def version_of(folder: Path) -> int:
    hint = folder / "metadata" / "version-hint.text"
    return int(hint.read_text()) if hint.exists() else 0


def wait_for_version(broker: Penstock, version: int) -> Path:
    """The table's folder, once its hint is that far."""
    folder = folder_of(broker)
    broker.process.wait_until(lambda: version_of(folder) >= version, "the hint of the table", seconds_max=SECONDS_MAX)
    return folder


def table_at(folder: Path) -> StaticTable:
    return StaticTable.from_metadata(f"file://{folder}/metadata/v{version_of(folder)}.metadata.json")


def values_of(table: StaticTable) -> list[tuple[int, int, bytes]]:
    rows = table.scan(selected_fields=("partition", "offset", "value")).to_arrow().to_pylist()
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)


def expected(count: int) -> list[tuple[int, int, bytes]]:
    return sorted((number % PARTITIONS, number // PARTITIONS, b"v%d" % number) for number in range(count))


def test_a_data_folder_of_every_ordinary_character_has_tables_that_can_be_read(
    penstock: PenstockFactory, tmp_path: Path
) -> None:
    broker = penstock(data=tmp_path / "my data %41%20 ü+&='[x];,~", options={"archive-interval-s": "3600"})
    create(broker)
    produce(broker, 0, 10)
    archive_by_http(broker, TOPIC)
    folder = wait_for_version(broker, 1)
    assert values_of(table_at(folder)) == expected(10)
    assert consumed(broker, 10) == {b"v%d" % number for number in range(10)}


@pytest.fixture
def options() -> dict[str, str]:
    return {"archive-interval-s": "3600", "gc-min-age-s": "1"}


def test_the_table_follows_each_pass_and_tells_which_offsets_came(
    penstock: PenstockFactory, options: dict[str, str]
) -> None:
    broker = penstock(options=options)
    create(broker)
    for number in range(3):
        produce(broker, number * 40, 40)
        archive_by_http(broker, TOPIC)
    table = table_at(wait_for_version(broker, 3))
    assert values_of(table) == expected(120)
    summaries = [one.summary for one in table.snapshots() if one.summary is not None]
    told = [json.loads(str(summary["penstock.offsets"])) for summary in summaries]
    assert told == [{"0": [n * 20, n * 20 + 20], "1": [n * 20, n * 20 + 20]} for n in range(3)]
    first = table.snapshots()[0]
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 40
    assert table.scan(row_filter="partition = 1 and offset < 3").to_arrow().num_rows == 3


def test_it_survives_an_agent_that_is_killed_and_takes_up_where_it_was(
    penstock: PenstockFactory, options: dict[str, str]
) -> None:
    broker = penstock(options=options)
    create(broker)
    produce(broker, 0, 40)
    archive_by_http(broker, TOPIC)
    broker.process.kill()
    again = penstock(data=broker.data, options=options)
    produce(again, 40, 40)
    archive_by_http(again, TOPIC)
    assert values_of(table_at(wait_for_version(again, 2))) == expected(80)


def test_what_was_deleted_leaves_the_table_and_then_the_bucket(
    penstock: PenstockFactory, options: dict[str, str]
) -> None:
    broker = penstock(options=options)
    create(broker)
    produce(broker, 0, 40)
    archive_by_http(broker, TOPIC)
    folder = wait_for_version(broker, 1)
    delete_records(broker.bootstrap, dict.fromkeys([(TOPIC, number) for number in range(PARTITIONS)], -1))

    def is_gone() -> bool:
        return not list((folder / "data").glob("*.parquet"))

    broker.process.wait_until(is_gone, "the last data file to go", seconds_max=SECONDS_MAX)
    assert values_of(table_at(folder)) == []


def test_a_table_whose_metadata_is_damaged_is_begun_again_by_a_command(penstock: PenstockFactory) -> None:
    options = {"archive-interval-s": "3600"}
    broker = penstock(options=options)
    create(broker)
    produce(broker, 0, 40)
    archive_by_http(broker, TOPIC)
    folder = wait_for_version(broker, 1)
    rows = values_of(table_at(folder))
    broker.process.kill()  # so that nothing of the table is in memory

    (metadata,) = (path for path in (folder / "metadata").glob("*.metadata.json") if not path.name.startswith("v"))
    metadata.write_bytes(b"junk")
    broker = penstock(data=broker.data, options=options, start_seconds_max=SECONDS_MAX)
    produce(broker, 40, 20)

    def lake(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(PENSTOCK), "lake", *arguments, "--server", broker.http]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, input="n\n")

    told = lake("status", TOPIC)
    assert told.returncode == 1
    assert "is damaged" in told.stderr
    assert "penstock lake rebuild" in told.stderr
    assert lake("rebuild", TOPIC).returncode == 1, "nobody said yes"
    assert "there is no topic" in lake("rebuild", "none").stderr
    done = lake("rebuild", TOPIC, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["topic"], answer["files"], answer["records"], answer["version"]) == (TOPIC, 1, 40, 2)
    assert values_of(table_at(wait_for_version(broker, 2))) == rows
    archive_by_http(broker, TOPIC)
    assert len(values_of(table_at(wait_for_version(broker, 3)))) == 60
    assert consumed(broker, 60) == {b"v%d" % number for number in range(60)}


@pytest.mark.usefixtures("spark")
def test_spark_reads_it_by_its_hint_while_no_agent_lives(
    penstock: PenstockFactory, options: dict[str, str], spark: "SparkSession"
) -> None:
    broker = penstock(options=options)
    create(broker)
    for number in range(2):
        produce(broker, number * 40, 40)
        archive_by_http(broker, TOPIC)
    folder = wait_for_version(broker, 2)
    broker.process.kill()
    frame = spark.read.format("iceberg").load(f"file://{folder}")
    rows = [(row["partition"], row["offset"], bytes(row["value"])) for row in frame.collect()]
    assert sorted(rows) == expected(80)
    assert frame.where("partition = 0 and offset between 5 and 9").count() == 5
