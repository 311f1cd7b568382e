"""The Spark of the agreement run: one session with two workers, Iceberg's jars, and our source."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.processes import provided
from tests.support.services.spark_python import worker_python
from tools import jars, java_runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(folder: Path, *jar_sets: str, java_options: Sequence[str] = ()) -> Iterator["SparkSession"]:
    """A session whose files are in `folder`, with Iceberg's jars and those of `jar_sets`. Its Java, which has
    `java_options`, has ended behind the block."""
    from pyspark.sql import SparkSession

    from iceberg_export.spark.source import register

    folders = [provided(jars.jar_folder(jar_set)) for jar_set in ("spark", *jar_sets)]
    names = sorted(str(jar) for jar_folder in folders for jar in jar_folder.glob("*.jar"))
    os.environ |= {
        "JAVA_HOME": str(provided(java_runtime.java_home())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(worker_python(folder)),
    }
    settings = {
        "spark.jars": ",".join(names),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-agreement")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    gateway = session.sparkContext._gateway
    assert gateway is not None
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # upon which Spark's Java ends
        gateway.proc.wait(timeout=60)
