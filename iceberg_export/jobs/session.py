"""The Spark of a job: that of `spark-submit`, or one in this process with all cores of the machine.

Rule: what the caller's environment or `spark-submit` set goes before what is set here.
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
"""Starts Spark when it is called first, and gives the same one each time."""


@contextmanager
def spark_when_needed(name: str) -> Iterator[StartSpark]:
    """Spark takes seconds to start: what cannot be done is told before. The call raises as `spark_context` does."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(spark_context(name)))


@contextmanager
def spark_context(name: str) -> Iterator["SparkContext"]:
    """Ended with the block. Raises `OptionError` where Spark or Java is missing, or Java does not start."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise OptionError("Spark is not installed here: pip install 'pyspark==4.1.*'") from error
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise OptionError("Spark needs Java 17 or 21: install it, and set JAVA_HOME")
    # The workers are this Python, and not the first that a shell finds.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setAppName(name)
    settings.setIfMissing("spark.master", "local[*]")
    settings.setIfMissing("spark.ui.enabled", "false")
    settings.setIfMissing("spark.ui.showConsoleProgress", "false")
    try:
        context = SparkContext.getOrCreate(settings)
    except (PySparkException, OSError) as error:
        raise OptionError(
            f"Spark does not start: Java 17 or 21 is needed, which JAVA_HOME or the PATH names; above is why. {error}"
        ) from error
    context.setLogLevel("ERROR")
    try:
        yield context
    finally:
        context.stop()
