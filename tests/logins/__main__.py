"""python -m tests.logins [--frames N] [--seed N]

Sends drawn and mutated frames of clients without a password to the table of states until one breaks a rule.
"""

import argparse
import sys

from tests.logins.sweep import LoginFault, LoginSweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        print(LoginSweep(options.seed).run(options.frames))
    except LoginFault as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
