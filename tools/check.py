"""`make check`: all that is asked of the code beside its tests. Every check runs; what failed tells why.

python3 -m tools.check [NAME...]      (from the environment that holds the groups test and lint)
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from tools.steps import ROOT, say

PROGRAMS = Path(sys.executable).parent
CORE_TESTS = ("tests/unit/coordinator", "tests/unit/protocol", "tests/unit/storage", "tests/unit/txn", "tests/property")
"""What must reach every branch of the core by itself (the core: pyproject.toml, [tool.coverage.run])."""

CHECKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "format": (("ruff", "format", "--check", "."),),
    "lint": (("ruff", "check", "."),),
    "types (mypy)": (("mypy",),),
    "types (pyright)": (("pyright",),),
    "layers": (("lint-imports", "--no-logo"),),
    "coverage of the core": (
        ("coverage", "erase"),
        ("coverage", "run", "-m", "pytest", "-q", "--no-header", "--durations=0", "--durations-min=5", *CORE_TESTS),
        ("coverage", "report"),
    ),
    "tidiness": (("pytest", "-q", "--no-header", "--durations=0", "--durations-min=5", "tests/architecture"),),
}
ENVIRONMENT = {
    "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
}


def check(names: list[str]) -> bool:
    """Runs the checks, prints one line each, and what the failed ones say; returns whether all passed."""
    failed = []
    for name, commands in CHECKS.items():
        if names and not any(name.startswith(wanted) for wanted in names):
            continue
        started = time.monotonic()
        output = ""
        is_passed = True
        for command in commands:
            done = subprocess.run(
                [PROGRAMS / command[0], *command[1:]],
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            output += done.stdout
            is_passed = is_passed and done.returncode == 0
        say(f"{'ok    ' if is_passed else 'FAILED'} {name:<24} {time.monotonic() - started:4.0f} s")
        if not is_passed:
            failed.append(name)
            say("    " + output.replace("\n", "\n    "))
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return not failed


if __name__ == "__main__":
    raise SystemExit(0 if check(sys.argv[1:]) else 1)
