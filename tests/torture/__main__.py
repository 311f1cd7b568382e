"""Clients write and read for twenty minutes while everything around them breaks: `make torture`.

    python -m tests.torture [--minutes 20] [--seed 1] [--folder PATH]

Exit status 1 on any anomaly. Logs of agents, clients and proxy stay in the folder, a temporary one by default.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.torture.report import as_text
from tests.torture.run import Run
from tests.torture.schedule import schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where data and logs go")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-torture-"))
    print(f"logs: {folder}", flush=True)
    run = Run(folder=folder, seed=arguments.seed, slots=schedule(arguments.seed), seconds_max=arguments.minutes * 60)
    try:
        report = run.run()
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    text = as_text(report)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if report.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
