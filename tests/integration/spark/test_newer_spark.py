"""`format("penstock")` on a Spark that passes position and limit to streams of Python, and asks them for their end.

Rule: the newer pyspark comes first on the path, everything else is the environment's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from storage.refs import TAIL_KEY
from tests.support.services.local_services import Penstock, PenstockFactory
from tools import pins
from tools.newer_spark import ensure_newer_spark
from tools.steps import ROOT

SECONDS_MAX = 300
RECORDS, MORE = 100, 50
JOB = """
import json, sys
import pyspark
from pyspark.sql import SparkSession
from iceberg_export.spark.source import register

store, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)

def run():
    query = (
        spark.readStream.format("penstock")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "30")
        .load(store)
        .writeStream.format("parquet")
        .option("path", folder + "/rows")
        .option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

batches = run()
rows = sorted((row.offset, bytes(row.value).decode()) for row in spark.read.parquet(folder + "/rows").collect())
count = spark.read.format("penstock").option("subscribe", "orders").load(store).where("offset >= 10").count()
print(json.dumps(dict(version=pyspark.__version__, batches=batches, rows=rows, count=count)))
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS_MAX)
def test_a_query_that_ends_takes_as_many_batches_as_its_limit_asks_for(
    penstock: PenstockFactory, java: Path, tmp_path: Path
) -> None:
    broker = penstock(options={"archive-interval-s": "3600", "tail-interval-ms": "100"})
    manifest = broker.data / "store" / TAIL_KEY
    broker.process.wait_until(manifest.exists, "the first tail manifest")
    _produce(broker, 0, RECORDS)
    broker.process.stop()  # it leaves a tail manifest that lists all
    first = _run(broker, java, tmp_path)
    assert first["version"] == pins.SPARK_NEWER
    assert first["batches"] == [30, 30, 30, 10]
    assert first["rows"] == [[number, str(number)] for number in range(RECORDS)]
    assert first["count"] == RECORDS - 10
    before = manifest.read_bytes()
    broker = penstock(data=broker.data, options={"archive-interval-s": "3600", "tail-interval-ms": "100"})
    _produce(broker, RECORDS, RECORDS + MORE)
    broker.process.wait_until(lambda: manifest.read_bytes() != before, "its own tail manifest")
    broker.process.stop()
    again = _run(broker, java, tmp_path)
    assert again["batches"] == [30, 20], "it goes on where the checkpoint says"
    assert again["rows"] == [[number, str(number)] for number in range(RECORDS + MORE)]


def _produce(broker: Penstock, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, end):
        producer.produce("orders", b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def _run(broker: Penstock, java: Path, folder: Path) -> dict[str, object]:
    """What the job prints, over the store of a broker that has ended."""
    program = folder / "job.py"
    program.write_text(JOB)
    done = subprocess.run(
        [sys.executable, program, f"file://{broker.data / 'store'}", folder / "out"],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{ensure_newer_spark()}:{ROOT}",
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found
