"""`format("penstock")` on a cluster of Spark's own: driver and executors have the archive, and nothing of the checkout.

Rule: Python is begun without its site, so that the checkout, which is installed in the environment of the tests, is not
found; libraries are. Every process says where it has the project from.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from iceberg_export.spark.package import write_archive
from storage.refs import TAIL_KEY
from tests.support.services.local_services import PenstockFactory

SECONDS_MAX = 300
JOB = """
import json, sys
from pyspark.sql import SparkSession
import iceberg_export
from iceberg_export.spark.source import register

def where(_):
    import iceberg_export
    return [iceberg_export.__file__]

store, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
batch = spark.read.format("penstock").option("subscribe", "orders").load(store).where("partition = 0")
query = (
    spark.readStream.format("penstock")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load(store)
    .writeStream.format("parquet")
    .option("path", folder + "/rows")
    .option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

def rows(frame):
    return sorted((row.offset, bytes(row.value).decode()) for row in frame.select("offset", "value").collect())

print(json.dumps({
    "batch": rows(batch),
    "stream": rows(spark.read.parquet(folder + "/rows")),
    "from": [iceberg_export.__file__, *spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()],
}))
"""


def _without_logs(text: str) -> str:
    """What Python and Java say of a failure, without Spark's lines of information."""
    return "\n".join(line for line in text.splitlines() if " INFO " not in line)[:20_000]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_executors_that_have_the_archive_alone_read_batches_and_streams(
    penstock: PenstockFactory, java: Path, tmp_path: Path
) -> None:
    broker = penstock(options={"archive-interval-s": "3600", "tail-interval-ms": "100"})
    manifest = broker.data / "store" / TAIL_KEY
    broker.process.wait_until(manifest.exists, "the first tail manifest")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce("orders", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    broker.process.stop()  # it leaves a tail manifest that tells of all

    archive, job, python = tmp_path / "penstock-spark.zip", tmp_path / "job.py", tmp_path / "python"
    write_archive(archive)
    job.write_text(JOB)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    site_packages, spark_home = Path(pyspark.__file__).parents[1], tmp_path / "spark"
    spark_home.mkdir()  # workers write below it
    for folder in ("bin", "jars", "python"):
        if (site_packages / "pyspark" / folder).exists():
            (spark_home / folder).symlink_to(site_packages / "pyspark" / folder)
    paths = f"{archive}:{site_packages}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(site_packages),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [
            Path(sys.executable).with_name("spark-submit"),
            *("--master", "local-cluster[1,2,1024]", "--py-files", archive),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(job, f"file://{broker.data / 'store'}", tmp_path / "out"),
        ],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": paths,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, _without_logs(done.stderr)
    told = json.loads(done.stdout)
    sent = [[number, str(number)] for number in range(100)]
    assert (told["batch"], told["stream"]) == (sent, sent)
    assert all("penstock-spark.zip" in place for place in told["from"]), told["from"]
    assert any(str(archive) not in place for place in told["from"]), "executors have a copy that was sent to them"
