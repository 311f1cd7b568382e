"""Spark in this process's Java, with Iceberg and S3."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.services.java import SHORT_LIVED
from tests.support.services.spark_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_over(java: Path, jars: Sequence[Path], folder: Path) -> Iterator["SparkSession"]:
    """A Spark session with two workers. Its files are in `folder`; its Java ends with it."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.parent.parent))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", str(worker_python(folder)))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("penstock-tests")
            .config("spark.jars", ",".join(map(str, jars)))
            .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", " ".join(SHORT_LIVED))
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            gateway = session.sparkContext._gateway
            session.stop()
            assert gateway is not None
            gateway.shutdown()
            gateway.proc.stdin.close()  # upon which Spark's Java ends
            gateway.proc.wait(timeout=60)
