"""`penstock lake verify`, `rewrite` and `backfill` beside a broker, and what somebody changed in its bucket."""

import io
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog

from tests.services import PENSTOCK, Penstock, PenstockFactory

OPTIONS = {"archive-interval-s": "3600"}
JOB_SECONDS_MAX = 120


@pytest.fixture
def broker(penstock: PenstockFactory) -> Penstock:
    broker = penstock(options=OPTIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for archived in range(2):
        for number in range(100):
            producer.produce("orders", b"%d of %d" % (number, archived), b"k%d" % (number % 7), partition=0)
        assert producer.flush(30) == 0
        run(broker, "archive", "orders", "--wait")
    producer.produce("orders", b"not archived", partition=0)
    assert producer.flush(30) == 0
    return broker


def run(broker: Penstock, *arguments: str, java: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**os.environ, "PENSTOCK_SERVER": broker.http}
    if java is not None:
        environment = {**environment, "JAVA_HOME": str(java.parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [PENSTOCK, *arguments], env=environment, capture_output=True, text=True, timeout=JOB_SECONDS_MAX, check=False
    )


def verify(broker: Penstock, java: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = run(broker, "lake", "verify", *arguments, "--json", java=java)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def data_files(broker: Penstock) -> list[Path]:
    return sorted((broker.data / "store" / "lake").glob("orders-*/data/*.parquet"))


def rewritten(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """A data file with other rows, by somebody's hand."""
    table = pq.read_table(io.BytesIO(file.read_bytes()))
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), file)


def told(report: dict[str, Any]) -> str:
    """Findings, a line for each."""
    return "\n".join(
        f"{each['file']} {each['partition']} {each['offset']} {each['what']}" for each in report["findings"]
    )


def test_a_table_that_is_whole_and_one_that_is_not(broker: Penstock, java: Path) -> None:
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["rows"], report["findings"], report["not_checked"]) == (0, 200, [], [])
    assert (report["files"], report["partitions"], report["dropped"]) == (len(data_files(broker)), 1, 0)

    file = data_files(broker)[-1]
    key = str(file.relative_to(broker.data / "store"))
    good = file.read_bytes()
    rewritten(file, lambda table: table.slice(0, table.num_rows - 1))
    done = run(broker, "lake", "verify", java=java)
    assert done.returncode == 1, done.stderr
    assert f"orders: 2 of 2 files, {sum(each.stat().st_size for each in data_files(broker)):,} bytes" in done.stderr
    assert f"FOUND orders: {key}: it has {file.stat().st_size:,} bytes, its manifest says {len(good):,}" in done.stdout
    assert "offsets 100 to 199 are 100 records by the log's index, and 99 rows; see docs/RUNBOOK.md, " in done.stdout

    file.write_bytes(good)
    rewritten(file, lambda table: pa.concat_tables([table.slice(0, 1), table]))
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["rows"]) == (1, 201)
    assert f"{key} 0 100 the record stands twice, in row 1" in told(report)
    assert f"{key} 0 100 offsets 100 to 199 are 100 records by the log's index, and 101 rows" in told(report)

    file.unlink()
    status, (report,) = verify(broker, java, "orders")
    assert status == 1
    assert told(report) == f"{key} None None it is not in the bucket"
    assert "Objects are missing" in report["findings"][0]["do"]


def test_what_is_not_in_the_table_by_right(penstock: PenstockFactory, java: Path) -> None:
    """Aborted records, markers, and what the log has dropped; with several partitions in a file."""
    broker = penstock(options=OPTIONS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", num_partitions=2)])["orders"].result(30)
    plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "orders"})
    producer.init_transactions(30)
    for passes in range(2):
        for is_committed in (True, False):
            producer.begin_transaction()
            for number in range(10):
                producer.produce("orders", b"in a transaction", partition=number % 2)
            assert producer.flush(30) == 0
            plain.produce("orders", b"between", partition=passes)
            assert plain.flush(30) == 0
            producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
        assert run(broker, "archive", "orders", "--wait").returncode == 0
    assert len(data_files(broker)) == 2
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["findings"], report["rows"], report["dropped"]) == (0, [], 24, 0)

    store = f"file://{broker.data / 'store'}"
    status, (report,) = verify(broker, java, "--without-agent", "--store", store)
    assert (status, report["findings"], report["not_checked"], report["rows"]) == (0, [], [], 24)

    (deleted,) = admin.delete_records([TopicPartition("orders", 0, 3)]).values()
    assert deleted.result(30).low_watermark == 3
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["findings"], report["rows"]) == (0, [], 24)

    rewritten(data_files(broker)[0], lambda table: table.slice(0, table.num_rows - 1))
    status, (report,) = verify(broker, java, "--without-agent", "--store", store)
    assert status == 1
    assert "11 rows, its manifest says 12" in told(report)
    assert any(each.startswith("the number of records of 1 snapshots") for each in report["not_checked"])


def test_damaged_metadata_is_found(broker: Penstock, java: Path) -> None:
    (folder,) = (broker.data / "store" / "lake").glob("orders-*/metadata")
    manifests = [path for path in folder.glob("*.avro") if not path.name.endswith("list.avro")]
    for manifest in manifests:
        manifest.write_bytes(manifest.read_bytes()[:-20])
    status, (report,) = verify(broker, java, "orders")
    assert status == 1
    assert "bytes, the manifest list says" in told(report)
    assert report["not_checked"]


def test_what_cannot_be_verified_is_told(broker: Penstock, java: Path) -> None:
    done = run(broker, "lake", "verify", "absent", java=java)
    assert done.returncode == 2
    assert "not verified: there is no topic absent" in done.stderr
    store = f"file://{broker.data / 'store'}"
    done = run(broker, "lake", "verify", "--server", "127.0.0.1:1", "--store", store, java=java)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not verified: no agent answers at http://127.0.0.1:1" in done.stderr
    done = run(broker, "lake", "verify", "--server", "127.0.0.1:1", java=java)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not verified: no agent answers" in done.stderr
    assert run(broker, "lake", "verify", "--without-agent").returncode == 2


FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}]
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})


def test_backfill_gives_columns_to_what_was_archived_before(penstock: PenstockFactory, java: Path) -> None:
    broker = penstock(options=OPTIONS)
    with SchemaRegistryClient({"url": f"http://{broker.http}/schema-registry"}) as registry:
        serialize = AvroSerializer(registry, SCHEMA)
        place = SerializationContext("orders", MessageField.VALUE)
        values = [serialize({"id": number, "city": "Bern"}, place) for number in range(50)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(3):
        for value in values:
            producer.produce("orders", value, partition=0)
        assert producer.flush(30) == 0
        assert run(broker, "archive", "orders", "--wait").returncode == 0
    before = run(broker, "consume", "orders", "--from", "earliest").stdout

    done = run(broker, "lake", "backfill", "orders", java=java)
    assert done.returncode == 2
    assert "set penstock.table.columns" in done.stderr

    alter(broker, "orders", {"penstock.table.columns": "value"})
    done = run(broker, "lake", "backfill", "orders", java=java)
    assert done.returncode == 0, done.stderr
    assert "3 files" in done.stdout
    assert "became 1" in done.stdout
    with closing(RestCatalog("penstock", uri=f"http://{broker.http}/iceberg")) as catalog:
        table = catalog.load_table("lake.orders")
        rows = table.scan(selected_fields=("offset", "value_id", "value_city")).to_arrow()
    assert rows.sort_by("offset")["value_id"].to_pylist() == [*range(50)] * 3
    assert set(rows["value_city"].to_pylist()) == {"Bern"}
    assert run(broker, "consume", "orders", "--from", "earliest").stdout == before
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["findings"], report["rows"], report["files"]) == (0, [], 150, 1)


def alter(broker: Penstock, topic: str, config: Mapping[str, str]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in config.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
