"""The services that other tests lean on are real and come up."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.store import S3Store

from tests.support.services.java import JavaProgram, KafkaBroker
from tests.support.services.local_services import Minio, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELLO = Path(__file__).parent / "HelloKafka.java"


def test_minio_keeps_an_object(minio: Minio) -> None:
    store = S3Store(
        minio.make_bucket("services"),
        endpoint=minio.endpoint,
        access_key_id=minio.access_key,
        secret_access_key=minio.secret_key,
        client_options={"allow_http": True},
    )
    obstore.put(store, "greeting", b"hello")
    assert bytes(obstore.get(store, "greeting").bytes()) == b"hello"


def test_apache_kafka_serves_a_compiled_java_client(
    kafka_broker: KafkaBroker, compile_java: Callable[[Path], JavaProgram]
) -> None:
    assert "greetings" in compile_java(HELLO).run(kafka_broker.bootstrap, "greetings").strip().split(",")


@pytest.mark.slow  # test_clients has Java's, test_kill kills
def test_penstock_serves_a_java_client_and_remembers_after_a_kill(
    penstock: PenstockFactory, compile_java: Callable[[Path], JavaProgram]
) -> None:
    hello = compile_java(HELLO)
    broker = penstock()
    assert hello.run(broker.bootstrap, "first").strip() == "first"
    broker.process.kill()
    again = penstock(data=broker.data)
    assert sorted(hello.run(again.bootstrap, "second").strip().split(",")) == ["first", "second"]
    assert again.process.stop() == 0


def test_penstock_keeps_its_objects_in_minio(penstock: PenstockFactory, minio: Minio) -> None:
    bucket = minio.make_bucket("penstock")
    broker = penstock(store=f"s3://{bucket}/cluster", env=minio.settings)
    assert broker.process.stop() == 0
    assert any((minio.data / bucket / "cluster").iterdir())


def test_spark_runs_python_workers(spark: "SparkSession") -> None:
    doubled = spark.sparkContext.parallelize(range(10), 2).map(lambda number: number * 2)
    assert doubled.sum() == 90


def test_spark_counts_rows_of_an_iceberg_table(spark: "SparkSession", tmp_path: Path) -> None:
    spark.conf.set("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.local.type", "hadoop")
    spark.conf.set("spark.sql.catalog.local.warehouse", str(tmp_path))
    spark.range(100).writeTo("local.db.numbers").using("iceberg").create()
    assert spark.table("local.db.numbers").count() == 100
