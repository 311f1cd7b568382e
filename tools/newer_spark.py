"""A newer Spark than the one of `uv.lock`, whose version Iceberg decides: one slow test reads with it.

Rule: pyspark alone, in a folder of its own; the libraries that it needs are those of the environment.
"""

from pathlib import Path

from tools import pins
from tools.environment import install_apart
from tools.steps import cache_folder, ensure


def ensure_newer_spark() -> Path:
    """Folder with the package pyspark and its jars: half a gigabyte, two minutes the first time."""
    place = cache_folder() / f"pyspark-{pins.SPARK_NEWER}"
    return ensure(
        f"Spark {pins.SPARK_NEWER}", place, lambda folder: install_apart(f"pyspark=={pins.SPARK_NEWER}", folder)
    )
