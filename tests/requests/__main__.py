"""python -m tests.requests [--requests N] [--seed N]

Sends drawn requests to an agent of its own until one breaks a rule, and prints it with those before it; then restarts
the agent and audits what it left.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.requests.lane import Fault
from tests.requests.sweep import OPTIONS, SETTINGS, judge, sweep
from tests.support.services.local_services import PENSTOCK, PenstockFactory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-requests-")))
        start = PenstockFactory(folder=folder, stack=stack)
        broker = start(options=OPTIONS, settings=SETTINGS)
        try:
            print(sweep([broker], seed=options.seed, requests=options.requests))
            if broker.process.stop() != 0:
                raise Fault("the agent did not stop as asked")
            again = start(data=broker.data, options=OPTIONS)
            judge(again, seed=options.seed)
            again.process.stop()
        except Fault as fault:
            print(fault)
            return 1
        return subprocess.run([PENSTOCK, "audit", "--data-dir", broker.data], timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main())
