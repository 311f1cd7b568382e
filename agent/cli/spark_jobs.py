"""Runs a Spark job of `iceberg_export.jobs` in a new process, without `spark-submit`.

A job prints its progress and its result itself, and its exit status is the command's.
"""

import subprocess
import sys
from collections.abc import Sequence

from agent.cli.clients.http_client import AgentServer, get


def store_of(server: AgentServer) -> str:
    """The bucket's URL, by a running agent. Raises `CommandFailed`."""
    return str(get(server, "/api/status")["store"])


def run_job(name: str, arguments: Sequence[str]) -> int:
    """Run the job; returns its exit status."""
    program = [sys.executable, "-m", f"iceberg_export.jobs.{name}"]
    done = subprocess.run([*program, *arguments], check=False)  # noqa: S603  # it is this program, and no shell
    return done.returncode
