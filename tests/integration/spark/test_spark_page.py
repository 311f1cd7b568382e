"""The examples of docs/spark.md, run as they stand there, in their order, over one broker's folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from tests.support.documents import blocks
from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.lake.flight_events import create_topic
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import Penstock, PenstockFactory
from tests.support.services.spark_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
RECORDS = {"orders": (2_500, 600), "orders-eu": (100,), "customers": (10,)}
"""Records of each partition of the topics that the examples name."""
MORNING_MS, NOON_MS = 1_700_006_400_000, 1_700_049_600_000
"""The times that the examples give. The first half of a partition is from the morning, the rest from noon."""
SECONDS_MAX = 120
LOGIN = re.compile(r'\n *\.option\("penstock\.(token|user|password|ca)\b[^)]*\)')
"""The login of a tenant. The broker of these tests asks for none."""
JOB = """
from pyspark.sql import SparkSession

from iceberg_export.spark.source import register

spark = SparkSession.builder.getOrCreate()
register(spark)
assert spark.read.format("penstock").option("subscribe", "orders").load().count() == 3_100
"""
"""The `job.py` that the page starts."""


@pytest.fixture
def broker(penstock: PenstockFactory) -> Penstock:
    """With the topics of the examples, all archived, and the table in the tail manifest."""
    broker = penstock(options=AT_ONCE)
    create_topic(broker.bootstrap, "results", 1)
    for topic, counts in RECORDS.items():
        create_topic(broker.bootstrap, topic, len(counts))
        for partition, count in enumerate(counts):
            produce(broker, topic, partition, count, earlier=count // 2)
        archive_by_http(broker, topic)
    lake = SparkLake(open_bucket(f"file://{broker.data}/store", {}))

    def is_archived(name: str) -> bool:
        topic = topic_in_manifest(lake, name)
        return topic is not None and tuple(part.archived_end for part in topic.partitions) == RECORDS[name]

    broker.process.wait_until(lambda: all(map(is_archived, RECORDS)), "the tail manifest", seconds_max=SECONDS_MAX)
    return broker


def produce(broker: Penstock, topic: str, partition: int, count: int, *, earlier: int = 0) -> None:
    """Sends `count` records to one partition, the first `earlier` of them with the time of the morning."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        time_ms = MORNING_MS if number < earlier else NOON_MS
        producer.produce(topic, b"%d" % number, b"%d" % (number % 10), partition, timestamp=time_ms)
    assert producer.flush(SECONDS_MAX) == 0


def examples(broker: Penstock, folder: Path) -> Iterator[str]:
    """The Python blocks with this broker's addresses and folders."""
    store = broker.data / "store"
    (table,) = (store / "lake").glob("orders-" + "[0-9a-f]" * 32)
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            yield LOGIN.sub(
                "",
                block.text.replace("https://agent-1.example:9644", f"http://{broker.http}")
                .replace("s3://bucket/prefix", f"file://{store}")
                .replace("file:///DATA-DIR/store", f"file://{store}")
                .replace("orders-<id>", table.name)
                .replace("s3a://elsewhere", str(folder))
                .replace("127.0.0.1:9092", broker.bootstrap),
            )


@pytest.mark.slow
def test_every_python_example_of_the_page_runs(spark: "SparkSession", broker: Penstock, tmp_path: Path) -> None:
    catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": f"http://{broker.http}/iceberg"}
    for key, value in catalog.items():
        spark.conf.set(f"spark.sql.catalog.penstock{key}", value)
    names: dict[str, Any] = {"spark": spark, "frame": spark.range(10)}
    for code in examples(broker, tmp_path):
        if "counts." in code:
            names["counts"] = names["enriched"].selectExpr("id as city", "customer")
        exec(compile(code, str(PAGE), "exec"), names)
        if "readStream" in code and "query" in code:
            names["query"].processAllAvailable()
            names["query"].stop()
            assert spark.table("seen").count() == 100
            spark.sql("DROP TABLE seen")
    written = spark.read.format("penstock").option("subscribe", "results").load(f"file://{broker.data}/store")
    try:
        names["query"].processAllAvailable()  # which fixes where the stream begins: at the end of the topic
        produce(broker, "orders", 0, 50)
        broker.process.wait_until(lambda: written.count() == 10 + 50, "what the stream wrote", seconds_max=SECONDS_MAX)
    finally:
        names["query"].stop()
        names["sink"].close()
    assert names["keys"].columns == ["key", "timestamp"]
    assert names["orders"].count() == names["keys"].count() == 3_150
    assert names["then"].count() == 1_000 + 500
    assert names["noon"].count() == 1_250 + 300 + 50


@pytest.mark.slow
@pytest.mark.timeout(4 * SECONDS_MAX)
def test_every_shell_example_of_the_page_runs(broker: Penstock, java: Path, tmp_path: Path) -> None:
    store = f"file://{broker.data}/store"
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "job.py").write_text(JOB, encoding="utf-8")
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "JAVA_HOME": str(java.parent.parent),
        "PENSTOCK_STORE": store,
        "PYSPARK_PYTHON": str(worker_python(tmp_path / "python")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": " ".join(SHORT_LIVED),
    }
    scripts = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "bash"]
    assert len(scripts) == 2
    for script in scripts:
        done = subprocess.run(
            ["bash", "-ec", script.replace("s3://bucket/prefix", store).replace("agent-1:9644", broker.http)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-20_000:]
