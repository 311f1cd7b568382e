"""The client libraries of a run, and how the program of each is started.

Rule: every program takes the same arguments and speaks the same lines (`tests.jepsen.librdkafka_worker`).
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.steps import ROOT

Command = tuple[str, ...]
"""Without its arguments: bootstrap, transactional id, group."""


def librdkafka(_folder: Path) -> Command:
    """Transactions V1."""
    return (sys.executable, "-m", "tests.jepsen.librdkafka_worker")


CLIENTS: Mapping[str, Callable[[Path], Command]] = {
    "librdkafka": librdkafka,
}
"""By name; the folder takes what is compiled."""

ENVIRONMENT: Mapping[str, str] = {"PYTHONPATH": str(ROOT)}
