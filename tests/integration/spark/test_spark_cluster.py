"""`format("penstock")` on a cluster of Spark's own: executors have the archive, and nothing of the checkout.

Rule: Python is begun without its site, so that the checkout, which is installed in the environment of the tests, is not
found; libraries are. Every process says where it has the project from.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from iceberg_export.spark.package import write_archive
from storage.refs import TAIL_KEY
from tests.support.services.local_services import PenstockFactory
from tools.packaging.wheel import build_wheel

SECONDS_MAX = 300
RECORDS = 100
SENT = [[number, str(number)] for number in range(RECORDS)]
JOB = """
import json, sys
from pyspark.sql import SparkSession
from {module} import register

def where(_):
    import iceberg_export
    return [iceberg_export.__file__]

store, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
import iceberg_export
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

print(json.dumps(dict(
    batch=rows(batch),
    stream=rows(spark.read.parquet(folder + "/rows")),
    driver=iceberg_export.__file__,
    executors=spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect(),
)))
"""


def _without_logs(text: str) -> str:
    """What Python and Java say of a failure, without Spark's lines of information."""
    return "\n".join(line for line in text.splitlines() if " INFO " not in line)[:20_000]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a job says: the rows that it read, and where its processes have the project from."""

    batch: list[list[object]]
    stream: list[list[object]]
    driver: str
    executors: list[str]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_executors_that_have_the_archive_alone_read_batches_and_streams(
    penstock: PenstockFactory, java: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "penstock-spark.zip"
    write_archive(archive)
    told = _submitted(
        _hundred_orders(penstock), JOB.format(module="iceberg_export.spark.source"), archive, java, tmp_path, archive
    )
    assert (told.batch, told.stream) == (SENT, SENT)
    assert all("penstock-spark.zip" in place for place in (told.driver, *told.executors)), told
    assert any(str(archive) not in place for place in told.executors), "executors have a copy that was sent to them"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_executors_get_the_archive_from_a_driver_that_has_the_wheel(
    penstock: PenstockFactory, java: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.unpack_archive(build_wheel(tmp_path), site, "zip")
    told = _submitted(_hundred_orders(penstock), JOB.format(module="penstock.spark"), site, java, tmp_path, None)
    assert (told.batch, told.stream) == (SENT, SENT)
    assert told.driver.startswith(str(site / "penstock" / "app")), told
    assert all("penstock-spark.zip" in place for place in told.executors), told
    assert not list(tmp_path.glob("penstock-spark-*")), "the driver left its archive"


def _hundred_orders(penstock: PenstockFactory) -> Path:
    """The store of a broker that has ended, with a topic of a hundred records in its tail."""
    broker = penstock(options={"archive-interval-s": "3600", "tail-interval-ms": "100"})
    manifest = broker.data / "store" / TAIL_KEY
    broker.process.wait_until(manifest.exists, "the first tail manifest")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    broker.process.stop()  # it leaves a tail manifest that tells of all
    return broker.data / "store"


def _submitted(store: Path, job: str, project: Path, java: Path, folder: Path, archive: Path | None) -> Told:
    """Run a job on a cluster. project: where the driver has the project from. archive: sent by `--py-files`."""
    program, python = folder / "job.py", folder / "python"
    program.write_text(job)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    site_packages, spark_home = Path(pyspark.__file__).parents[1], folder / "spark"
    spark_home.mkdir()  # workers write below it
    for name in ("bin", "jars", "python"):
        if (site_packages / "pyspark" / name).exists():
            (spark_home / name).symlink_to(site_packages / "pyspark" / name)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(site_packages),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [
            Path(sys.executable).with_name("spark-submit"),
            *("--master", "local-cluster[1,2,1024]"),
            *(() if archive is None else ("--py-files", archive)),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(program, f"file://{store}", folder / "out"),
        ],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": f"{project}:{site_packages}",
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, _without_logs(done.stderr)
    return Told(**json.loads(done.stdout))
