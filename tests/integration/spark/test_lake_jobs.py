"""`penstock lake verify`, `rewrite` and `backfill` beside a broker, and what somebody changed in its bucket."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog

from tests.support.lake.external_data_files import rewrite
from tests.support.lake.tail_manifest import is_table_in_manifest
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

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
    broker.process.wait_until(lambda: is_table_in_manifest(broker, "orders"), "the tail manifest")
    producer.produce("orders", b"not archived", partition=0)
    assert producer.flush(30) == 0
    return broker


def run(broker: Penstock, *arguments: str, java: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**os.environ, "PENSTOCK_SERVER": broker.http}
    if java is not None:
        options = " ".join(SHORT_LIVED)
        environment = {**environment, "JAVA_HOME": str(java.parent.parent), "SPARK_SUBMIT_OPTS": options}
        environment = {**environment, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [PENSTOCK, *arguments], env=environment, capture_output=True, text=True, timeout=JOB_SECONDS_MAX, check=False
    )


def verify(broker: Penstock, java: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = run(broker, "lake", "verify", *arguments, "--json", java=java)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def data_files(broker: Penstock) -> list[Path]:
    return sorted((broker.data / "store" / "lake").glob("orders-*/data/*.parquet"))


@pytest.mark.slow  # test_verified_tables in one process; backfill verifies
def test_a_table_that_is_whole_and_one_that_lost_a_record(broker: Penstock, java: Path) -> None:
    status, (report,) = verify(broker, java, "orders")
    assert (status, report["rows"], report["findings"], report["not_checked"]) == (0, 200, [], [])
    assert report["files"] == len(data_files(broker))

    file = data_files(broker)[-1]
    rewrite(file, lambda table: table.slice(0, table.num_rows - 1))
    done = run(broker, "lake", "verify", java=java)
    assert done.returncode == 1, done.stderr
    assert f"orders: 2 of 2 files, {sum(each.stat().st_size for each in data_files(broker)):,} bytes" in done.stderr
    key = file.relative_to(broker.data / "store")
    assert f"FOUND orders: {key}: it has {file.stat().st_size:,} bytes, its manifest says" in done.stdout
    assert f"{key}, partition 0, offset 100: offsets 100 to 199 are 100 records by the log's index" in done.stdout


def test_what_cannot_be_verified_is_reported(broker: Penstock, java: Path) -> None:
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


@pytest.mark.slow
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
    broker.process.wait_until(lambda: is_table_in_manifest(broker, "orders"), "the tail manifest")
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
