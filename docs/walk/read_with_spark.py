"""Reads the topic `flights` with Spark, from the broker's folder alone: archived files, and what is not archived yet.

.venv/bin/python docs/walk/read_with_spark.py [DATA_DIR]        after: make setup-test
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from iceberg_export.spark.source import register

DATA_DIR = Path(sys.argv[1] if len(sys.argv) > 1 else "penstock-data")
BUNDLED_JAVA = Path(sys.prefix) / "java"
EVENT = "year int, month int, day int, carrier string, tailnum string, origin string, dest string, arr_delay double"


def main() -> None:
    if BUNDLED_JAVA.exists():
        os.environ.setdefault("JAVA_HOME", str(BUNDLED_JAVA))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need what this Python has
    spark = SparkSession.builder.master("local[2]").appName("flights").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    log = spark.read.format("penstock").option("subscribe", "flights").load(f"file://{DATA_DIR.absolute()}/store")
    log.groupBy("partition").agg(f.count("*").alias("records"), f.max("offset").alias("last offset")).orderBy(
        "partition"
    ).show()
    parsed = log.select("timestamp", f.from_json(f.col("value").cast("string"), EVENT).alias("event"))
    events = parsed.select("timestamp", "event.*")
    (
        events.groupBy("carrier")
        .agg(f.count("*").alias("flights"), f.round(f.avg("arr_delay"), 1).alias("minutes late"))
        .orderBy(f.desc("flights"))
        .show()
    )
    spark.stop()


if __name__ == "__main__":
    main()
