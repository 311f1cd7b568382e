"""python -m tests.security [--only NAME ...] [--seed N]: all checks of security that are too long for every test run.

Runs one check after the other, prints what each says and how long it took, and ends with a table. 1 where one failed.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Final

SIMULATED_WORLDS: Final = "9001..9100"
"""Seeds that no other run has."""


@dataclass(frozen=True, slots=True)
class SecurityCheck:
    """A command. `{seed}` in its words stands for the seed of the run."""

    name: str
    what: str
    words: tuple[str, ...]


_PYTEST: Final = ("pytest", "-q", "--no-header", "--durations=0", "--durations-min=5", "-m", "slow or not slow")
CHECKS: Final = (
    SecurityCheck(
        "logins",
        "a million frames before authentication in one process, a hundred thousand over sockets",
        ("tests.logins", "--sockets", "100000", "--seed", "{seed}"),
    ),
    SecurityCheck(
        "oracle",
        "100,000 questions about rights, 10,000 names and rules, 1,000 passwords, answered as by Kafka's own classes",
        ("tests.compat.oracle", "--seed", "{seed}"),
    ),
    SecurityCheck("refused", "the table of what is rejected", (*_PYTEST, "tests/security")),
    SecurityCheck("outsider", "one tenant's tries at another's", ("tests.security.outsider",)),
    SecurityCheck(
        "recorded",
        "recorded conversations of clients without rights, and about delegation tokens",
        (*_PYTEST, "tests/compat/test_protocol_diff.py", "-k", "without_rights or delegation_tokens"),
    ),
    SecurityCheck("worlds", "simulated clusters with ACLs and users", ("tests.simulation", SIMULATED_WORLDS)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=[check.name for check in CHECKS], metavar="NAME")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows: list[str] = []
    failed = 0
    for check in CHECKS:
        if asked.only and check.name not in asked.only:
            continue
        print(f"\n=== {check.name}: {check.what}", flush=True)
        began = time.monotonic()
        words = [word.format(seed=asked.seed) for word in check.words]
        status = subprocess.run([sys.executable, "-m", *words], check=False).returncode
        failed += status != 0
        rows.append(f"{check.name:10} {'ok' if status == 0 else 'FAILED':8} {time.monotonic() - began:6.0f} s")
    print("\n" + "\n".join(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
