"""Runs a Spark job of `iceberg_export.jobs` in a process of its own, where `spark-submit` is not needed.

Rule: a job shows its progress and its result itself, and its exit status is the command's.
"""

import subprocess
import sys
from collections.abc import Sequence

from agent.cli.clients.http_client import get


def store_of(server: str) -> str:
    """The bucket's URL, as an agent knows it. Raises `CommandFailed`."""
    return str(get(server, "/api/status")["store"])


def run_job(name: str, arguments: Sequence[str]) -> int:
    """The job's exit status."""
    program = [sys.executable, "-m", f"iceberg_export.jobs.{name}"]
    done = subprocess.run([*program, *arguments], check=False)  # noqa: S603  # it is this program, and no shell
    return done.returncode
