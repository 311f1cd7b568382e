"""A real Prometheus over three agents: panels have data, and faults raise their alerts: `make monitoring-check`.

    python -m tests.monitoring [--only bucket group] [--folder PATH]

`--only` chooses the faults whose names have one of the words; a word of none chooses the panels alone. Exit status 1
where a panel has no data, a fault raises no alert or another page, or an agent failed by itself. Logs and the report
are in the folder, a temporary one by default.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.monitoring.faults import FAULTS
from tests.monitoring.report import as_text
from tests.monitoring.run import Run
from tools.prometheus import ensure_prometheus
from tools.steps import SetupFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make monitoring-check", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words of faults' names")
    parser.add_argument("--folder", type=Path, help="where data and logs go")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-monitoring-"))).absolute()
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} has something in it: name a folder that is new or empty by --folder", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    print(f"logs: {folder}", flush=True)
    words = arguments.only
    faults = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    try:
        report = Run(program=ensure_prometheus(), folder=folder, faults=faults).run()
    except SetupFailed as failure:
        print(failure, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    text = as_text(report)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if report.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
