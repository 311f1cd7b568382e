"""Two tenants of one bucket in Spark: each reads its topic as a trusted job does, and is refused the other's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.security.tenants import ADMIN, ALICE, BOB, TenantBroker, acl, tenant_broker
from tests.support.services.local_services import Minio

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORE = "s3://spark-tenants/a/prefix"
COUNT = 120
Rows = list[tuple[int, int, bytes]]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[TenantBroker]:
    """Each tenant's topic has records in the archive and, in objects that both share, in the tail."""
    minio.make_bucket("spark-tenants")
    folder = tmp_path_factory.mktemp("spark-tenants")
    with tenant_broker(folder, store=STORE, env=minio.settings, tail_interval_ms="50") as tenants:
        tenants.create("alices", "bobs", partitions=2)
        tenants.allow(acl("alices", "alice"), acl("bobs", "bob"))
        produce(tenants, "archived")
        tenants.archive("alices", "bobs")
        produce(tenants, "tail")
        yield tenants


def produce(tenants: TenantBroker, word: str) -> None:
    producer = tenants.producer(**{"linger.ms": 5})
    for number in range(COUNT):
        for topic in ("alices", "bobs"):
            producer.produce(topic, f"{topic}-{word}-{number}".encode(), partition=number % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def source(spark: "SparkSession") -> "SparkSession":
    from iceberg_export.spark.source import register

    register(spark)
    return spark


def as_tenant(tenants: TenantBroker, token: str, **options: str) -> dict[str, str]:
    return {"penstock.server": f"http://{tenants.broker.http}", "penstock.token": token, **options}


def rows_of(frame: "DataFrame") -> Rows:
    found = frame.select("partition", "offset", "value").collect()
    return sorted((row["partition"], row["offset"], bytes(row["value"])) for row in found)


def test_a_batch_of_a_tenant_is_that_of_a_trusted_job(
    source: "SparkSession", tenants: TenantBroker, minio: Minio
) -> None:
    trusted = source.read.format("penstock").options(subscribe="alices", **minio.settings)
    tenants.broker.process.wait_until(lambda: trusted.load(STORE).count() == 2 * COUNT, "the tail manifest")
    expected = rows_of(trusted.load(STORE))
    frame = source.read.format("penstock").options(**as_tenant(tenants, ALICE, subscribe="alices")).load()
    assert rows_of(frame) == expected
    assert expected[0][2] == b"alices-archived-0"
    narrowed = as_tenant(tenants, ALICE, assign='{"alices": [1]}', startingOffsets='{"alices": {"1": 50}}')
    narrow = source.read.format("penstock").options(**narrowed).load()
    assert rows_of(narrow) == [row for row in expected if row[0] == 1 and row[1] >= 50]


def test_a_plan_shows_no_token(
    source: "SparkSession", tenants: TenantBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    from iceberg_export.spark.source import PenstockDataSource

    options = as_tenant(tenants, ALICE, subscribe="alices")
    frame = source.read.format("penstock").options(**options).load()
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode)
    frame.createOrReplaceTempView("alices_rows")
    source.sql("EXPLAIN EXTENDED SELECT count(*) FROM alices_rows").show(truncate=False)
    java = frame._jdf.queryExecution().toString()
    reader = PenstockDataSource(options).reader(frame.schema)
    shown = capfd.readouterr()
    texts = [shown.out, shown.err, java, repr(reader), repr(reader.options), str(vars(reader))]
    assert "penstock" in java.lower()
    assert not [text for text in texts if ALICE in text]


def test_another_tenants_topic_is_refused(source: "SparkSession", tenants: TenantBroker) -> None:
    frame = source.read.format("penstock").options(**as_tenant(tenants, ALICE, subscribe="bobs")).load()
    with pytest.raises(Exception, match=r"has no topic bobs .*or the user may not describe it") as caught:
        frame.count()
    assert ALICE not in str(caught.value)
    wrong = source.read.format("penstock").options(**as_tenant(tenants, "y" * 32, subscribe="alices")).load()
    with pytest.raises(Exception, match=r"does not accept the login") as caught:
        wrong.count()
    assert "y" * 32 not in str(caught.value)


def test_a_stream_of_a_tenant_brings_every_row_once_over_restarts(
    source: "SparkSession", tenants: TenantBroker, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{BOB}\n")
    options = {
        "penstock.server": f"http://{tenants.broker.http}",
        "penstock.token.file": str(token),
        "subscribe": "bobs",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    }
    batches: list[Rows] = []

    def run() -> None:
        frame = source.readStream.format("penstock").options(**options).load()
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: batches.append(rows_of(batch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        progress = json.dumps([dict(each) for each in query.recentProgress], default=str)
        query.stop()
        assert BOB not in progress

    run()
    assert len(batches) >= 3
    tenants.archive("bobs")
    tenants.produce("bobs", [f"later-{number}" for number in range(30)])
    run()
    values = [row[2] for batch in batches for row in batch]
    assert len(values) == len(set(values)) == 2 * COUNT + 30
    assert sorted(values) == sorted(row[2] for row in rows_of(admin_frame(source, tenants, "bobs")))


def admin_frame(source: "SparkSession", tenants: TenantBroker, topic: str) -> "DataFrame":
    return source.read.format("penstock").options(**as_tenant(tenants, ADMIN, subscribe=topic)).load()
