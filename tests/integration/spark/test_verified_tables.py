"""What a verification by Spark finds in a broker's tables: nothing by right, and each thing that somebody changed."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from iceberg_export.jobs.agents import AgentAddress
from iceberg_export.jobs.log_index import CannotVerify
from iceberg_export.jobs.report import TableReport, exit_status
from iceberg_export.jobs.verify import Verification
from tests.support.lake.external_data_files import rewrite
from tests.support.lake.tail_manifest import is_table_in_manifest
from tests.support.services.local_services import Penstock, PenstockFactory

OPTIONS = {"archive-interval-s": "3600", "tail-interval-ms": "100"}


@pytest.fixture
def broker(penstock: PenstockFactory) -> Penstock:
    """Two files of two partitions: of each and partition five committed records, then as many aborted ones, between
    records without transactions and markers. 14 offsets of partition 0 in the first file, of which 7 are rows."""
    broker = penstock(options=OPTIONS)
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("orders", num_partitions=2)])["orders"].result(30)
    plain, producer = Producer(client), Producer({**client, "transactional.id": "orders"})
    producer.init_transactions(30)
    for partition in range(2):
        for is_committed in (True, False):
            producer.begin_transaction()
            for number in range(10):
                producer.produce("orders", b"in a transaction", partition=number % 2)
            assert producer.flush(30) == 0
            plain.produce("orders", b"between", partition=partition)
            assert plain.flush(30) == 0
            producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
        archive(broker)
    assert len(data_files(broker)) == 2
    broker.process.wait_until(lambda: is_table_in_manifest(broker, "orders"), "the tail manifest")
    return broker


def archive(broker: Penstock) -> None:
    body = json.dumps({"topics": ["orders"], "wait": True}).encode()
    request = urllib.request.Request(f"http://{broker.http}/api/archive", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def data_files(broker: Penstock) -> list[Path]:
    return sorted((broker.data / "store" / "lake").glob("orders-*/data/*.parquet"))


def verification(spark: SparkSession, broker: Penstock, agent: AgentAddress | None) -> Verification:
    return Verification(lambda: spark.sparkContext, f"file://{broker.data / 'store'}", agent=agent)


def verified(spark: SparkSession, broker: Penstock, *, is_asking: bool = True) -> TableReport:
    verification_ = verification(spark, broker, AgentAddress(broker.http) if is_asking else None)
    (name,) = verification_.topics([])
    return verification_.table(name)


def told(report: TableReport) -> str:
    return "\n".join(finding.line() for finding in report.findings)


def test_nothing_is_found_in_what_was_aborted_and_dropped(spark: SparkSession, broker: Penstock) -> None:
    for is_asking in (True, False):
        report = verified(spark, broker, is_asking=is_asking)
        assert (told(report), report.problem, report.not_checked) == ("", "", [])
        assert (report.files, report.rows, report.dropped, report.partitions) == (2, 24, 0, 2)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("orders", 0, 14)]).values()
    assert deleted.result(30).low_watermark == 14
    report = verified(spark, broker)
    assert (told(report), report.rows, report.dropped) == ("", 24, 7)


def test_a_record_that_is_missing_or_there_twice_or_another_one(spark: SparkSession, broker: Penstock) -> None:
    file = data_files(broker)[0]
    good, key = file.read_bytes(), file.relative_to(broker.data / "store")

    rewrite(file, lambda table: table.slice(1))
    found = verified(spark, broker)
    assert exit_status([found]) == 1
    assert f"{key}: it has 11 rows, its manifest says 12" in told(found)
    assert f"{key}, partition 0, offset 0: offsets 0 to " in told(found)
    assert "11 rows, its manifest says 12" in told(verified(spark, broker, is_asking=False))

    file.write_bytes(good)
    rewrite(file, lambda table: pa.concat_tables([table.slice(0, 1), table]))
    assert f"{key}, partition 0, offset 0: the record stands twice, in row 1" in told(verified(spark, broker))
    found = verified(spark, broker, is_asking=False)
    assert f"{key}, partition 0, offset 0: the record stands twice, in row 1" in told(found)
    assert "records of offsets that are 13 rows now" in told(found)

    file.write_bytes(good)
    rewrite(file, _with_a_record_of_the_next_file)
    found = verified(spark, broker)
    assert f"{key}, partition 0, offset 0: offsets 0 to 13 are 7 records by the log's index, and 6 rows" in told(found)
    assert "manifest says 12" not in told(found), "the number of rows is right"


def _with_a_record_of_the_next_file(table: pa.Table) -> pa.Table:
    """In the place of its last one of partition 0."""
    offsets = table["offset"].to_pylist()
    row = max(row for row, partition in enumerate(table["partition"].to_pylist()) if partition == 0)
    offsets[row] = 14
    column = table.schema.get_field_index("offset")
    return table.set_column(column, table.schema.field(column), [pa.array(offsets, pa.int64())])


def test_records_in_two_files_and_a_file_that_is_gone(spark: SparkSession, broker: Penstock) -> None:
    first, second = data_files(broker)
    keys = [file.relative_to(broker.data / "store") for file in (first, second)]
    good = second.read_bytes()
    second.write_bytes(first.read_bytes())
    assert f"was written as {keys[0]}" in told(verified(spark, broker))
    rewrite(second, lambda table: table)
    found = verified(spark, broker)
    assert "partition 0, offset 0: offsets 0 to " in told(found)
    assert f"are in another file, too: {keys[0]}" in told(found)

    second.unlink()
    found = verified(spark, broker)
    assert [(each.file, each.what) for each in found.findings] == [(str(keys[1]), "it is not in the bucket")]
    assert "Objects are missing" in found.findings[0].do
    assert exit_status([found]) == 1
    second.write_bytes(good)
    assert exit_status([verified(spark, broker)]) == 0


class Behind(AgentAddress):
    """An agent whose first answers are of moments whose table is gone already."""

    def __init__(self, address: str, moments: int) -> None:
        super().__init__(address)
        self.moments = moments

    def get(self, path: str) -> bytes:
        page: dict[str, Any] = json.loads(super().get(path))
        if "/index?" in path and self.moments:
            self.moments -= 1
            page["metadata"] = f"{page['metadata']}.{self.moments}"
        return json.dumps(page).encode()


def test_a_table_that_was_replaced_meanwhile_is_looked_at_again(spark: SparkSession, broker: Penstock) -> None:
    report = verification(spark, broker, Behind(broker.http, 1)).table("orders")
    assert (told(report), report.problem, report.rows) == ("", "", 24)
    report = verification(spark, broker, Behind(broker.http, 100)).table("orders")
    assert (told(report), exit_status([report])) == ("", 2)
    assert report.problem.startswith("in each of 5 attempts, objects were replaced and deleted")


def test_what_does_not_belong_together_is_not_compared(
    spark: SparkSession, broker: Penstock, penstock: PenstockFactory
) -> None:
    other = penstock(options=OPTIONS)
    with pytest.raises(CannotVerify, match="of the same cluster"):
        verification(spark, broker, AgentAddress(other.http)).topics([])
    assert verification(spark, broker, AgentAddress(other.http)).table("orders").not_checked == [
        "the topic was deleted meanwhile"
    ]
