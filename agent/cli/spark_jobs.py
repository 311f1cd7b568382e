"""Runs a Spark job of `iceberg_export.jobs` in a new process, without `spark-submit`.

A job prints its progress and its result itself, and its exit status is the command's.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.cli.clients.http_client import AgentServer, get

PACKAGES: Final = str(Path(__file__).resolve().parents[2])
"""The folder of this project's packages. A new process of an installed wheel would not find them by itself."""


def store_of(server: AgentServer) -> str:
    """The bucket's URL, by a running agent. Raises `CommandFailed`."""
    return str(get(server, "/api/status")["store"])


def run_job(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the job with further variables in its environment; returns its exit status."""
    program = [sys.executable, "-m", f"iceberg_export.jobs.{name}"]
    environment = {**os.environ, **environment}
    environment["PYTHONPATH"] = os.pathsep.join([PACKAGES, *filter(None, [environment.get("PYTHONPATH")])])
    # It is this program, and no shell.
    done = subprocess.run([*program, *arguments], env=environment, check=False)  # noqa: S603
    return done.returncode
