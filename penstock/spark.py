"""The format `penstock` for Spark where the driver has Penstock installed: `from penstock.spark import register`.

Executors need the libraries alone (docs/spark.md): the modules are sent to them, as the archive for clusters.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.application import find_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = "penstock-spark.zip"


def register(spark: "SparkSession") -> None:
    """Register the format in a session, and send what it needs to the executors: now, and to each that comes later.

    The archive lies in a folder of the driver that is removed when the driver ends.
    """
    find_packages()
    from pyspark.sql import SparkSession as SessionOfTheDriver

    from iceberg_export.spark.package import write_archive
    from iceberg_export.spark.source import register as register_format

    folder = tempfile.mkdtemp(prefix="penstock-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / ARCHIVE
    write_archive(archive)
    session: Any = spark  # or one of Spark Connect, which has no context
    if isinstance(session, SessionOfTheDriver):
        context = session.sparkContext
        context.addPyFile(str(archive))
        # The driver plans streams in a process of its own, which gets no files: it is told of this one by its path.
        paths = [str(archive), *filter(None, [context.environment.get("PYTHONPATH")])]
        context.environment["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        session.addArtifacts(str(archive), pyfile=True)
    register_format(spark)
