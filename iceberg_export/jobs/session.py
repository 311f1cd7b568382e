"""The Spark context of a job: that of `spark-submit`, or a local one with all cores of the machine.

Settings of the environment and of `spark-submit` override the defaults here.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from iceberg_export.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark import SparkContext


StartSpark: TypeAlias = "Callable[[], SparkContext]"
"""Starts Spark at its first call, and returns the same context each time."""


@contextmanager
def spark_when_needed(name: str) -> Iterator[StartSpark]:
    """A function that starts Spark at its first call; the context ends with the block.

    Spark takes seconds to start, so a caller can report errors before. The function raises as `spark_context` does.
    """
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(spark_context(name)))


@contextmanager
def spark_context(name: str) -> Iterator["SparkContext"]:
    """A Spark context, which ends with the block. Raises `OptionError` where Spark or Java is missing or fails."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise OptionError("Spark is not installed here: pip install 'pyspark==4.1.*'") from error
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise OptionError("Spark needs Java 17 or 21: install it, and set JAVA_HOME")
    # Workers must run this Python, which has the imports. By default Spark runs the first `python3` on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setAppName(name)
    settings.setIfMissing("spark.master", "local[*]")
    settings.setIfMissing("spark.ui.enabled", "false")
    settings.setIfMissing("spark.ui.showConsoleProgress", "false")
    try:
        context = SparkContext.getOrCreate(settings)
    except (PySparkException, OSError) as error:
        raise OptionError(
            f"Spark does not start, see above: it needs Java 17 or 21 in JAVA_HOME or on the PATH. {error}"
        ) from error
    context.setLogLevel("ERROR")
    try:
        yield context
    finally:
        context.stop()
