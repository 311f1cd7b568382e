"""Penstock on a real Kubernetes of three nodes, by the chart and the image of `make image`: `make kube-test`.

    python -m tests.kube [--only rolling_restart drain] [--idle] [--image ARCHIVE] [--folder FOLDER]

Needs root, on Linux with cgroup version 1. Prints a table of the longest pauses at the end; 1 if a scenario failed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).with_name("scenarios")
ORDER = ("leftovers", "install")
"""They come first: the one has a lab for itself, the other one looks at agents to which nothing has happened."""
SCENARIO_SECONDS_MAX = 900
OPTIONS = (
    "-q",
    "--tb=short",
    "--durations=0",
    "--durations-min=5",
    "--override-ini=addopts=--strict-markers --import-mode=importlib",
    "-p",
    "no:randomly",
    "-p",
    "no:xdist",
)


def names() -> list[str]:
    """All scenarios, in the order in which they run."""
    found = sorted(path.stem for path in SCENARIOS.glob("*.py") if path.stem != "__init__")
    return [*ORDER, *(name for name in found if name not in ORDER)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make kube-test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=names(), choices=names(), metavar="SCENARIO")
    parser.add_argument("--idle", action="store_true", help="nothing else runs: fail on pauses above their limits")
    parser.add_argument("--image", type=Path, help="the image's archive, by default that in dist")
    parser.add_argument("--folder", type=Path, help="where the lab's files lie, by default penstock-kube")
    return run(parser.parse_args())


def run(arguments: argparse.Namespace) -> int:
    """Run the scenarios in one process of pytest. Returns its exit status."""
    words: list[str] = [*OPTIONS, f"--timeout={SCENARIO_SECONDS_MAX}", *(["--kube-idle"] if arguments.idle else [])]
    words += [f"--kube-image={arguments.image}"] if arguments.image else []
    words += [f"--kube-folder={arguments.folder}"] if arguments.folder else []
    return int(pytest.main([*words, *paths(arguments.only)]))


def paths(scenarios: Sequence[str]) -> list[str]:
    return [str(SCENARIOS / f"{name}.py") for name in names() if name in scenarios]


if __name__ == "__main__":
    sys.exit(main())
