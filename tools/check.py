"""`make check`: all that is asked of the code beside its tests. Every check runs, two at a time; what failed tells why.

python3 -m tools.check [NAME...]      (from the environment that holds the groups test and lint)
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.steps import ROOT, say

PROGRAMS = Path(sys.executable).parent
CHECKS_AT_ONCE = 2

CHECKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "format": (("ruff", "format", "--check", "."),),
    "lint": (("ruff", "check", "."),),
    "types (mypy)": (("mypy",),),
    "types (pyright)": (("pyright",),),
    "layers": (("lint-imports", "--no-logo"),),
    "tidiness": (("pytest", "-q", "--no-header", "--durations=0", "--durations-min=5", "tests/architecture"),),
}
ENVIRONMENT = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


def check(names: list[str]) -> bool:
    """Runs the checks, prints one line each, and what the failed ones say; returns whether all passed."""
    wanted = [name for name in CHECKS if not names or any(name.startswith(word) for word in names)]
    with ThreadPoolExecutor(CHECKS_AT_ONCE) as threads:
        passed = list(threads.map(_check, wanted))
    failed = [name for name, is_passed in zip(wanted, passed, strict=True) if not is_passed]
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return not failed


def _check(name: str) -> bool:
    """Runs the commands of one check, and tells how it went when all have ended."""
    started = time.monotonic()
    output = ""
    is_passed = True
    for command in CHECKS[name]:
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
    line = f"{'ok    ' if is_passed else 'FAILED'} {name:<24} {time.monotonic() - started:4.0f} s"
    say(line if is_passed else line + "\n    " + output.replace("\n", "\n    "))
    return is_passed


if __name__ == "__main__":
    raise SystemExit(0 if check(sys.argv[1:]) else 1)
