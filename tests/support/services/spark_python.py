"""The Python of Spark's workers in tests."""

import sys
from pathlib import Path


def worker_python(folder: Path) -> Path:
    """This Python without Spark's jars on its path, as a program in `folder`.

    Spark puts its core jar on its workers' PYTHONPATH, and Python 3.11 reads the index of each zip there again
    for each plan and each task: 0.17 s of a core. The workers find all they need where this Python finds it.

    Source: PythonUtils.sparkPythonPath; pyspark.worker_util.setup_spark_files (`importlib.invalidate_caches`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program
