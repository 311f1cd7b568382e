"""`make bench`: Penstock beside Apache Kafka on this machine; docs/BENCHMARKS.md tells how to read the result.

The table goes to stdout, progress to stderr, every figure to benchmarks/results/NAME.json. Status 1: a row failed.
"""

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agent.version import VERSION
from benchmarks.cases import Case, Kind, PeerName, cases
from benchmarks.measure import Scale
from benchmarks.report import render
from benchmarks.results import RowResult
from benchmarks.run import FAILURES, measure_rows, say, started
from tools.steps import SetupFailed

RESULTS = Path(__file__).parent / "results"
FULL = Scale(megabytes=200, latency_records=10_000, end_to_end_records=3_000, idle_seconds=20)
QUICK = Scale(megabytes=20, latency_records=3_000, end_to_end_records=500, idle_seconds=5)


def main() -> int:
    options = _options()
    scale = _scale(options)
    round_count = options.rounds or (1 if options.quick else 5)
    chosen = [case for case in cases() if _is_chosen(case, options)]
    if not chosen:
        say(f"no row matches {options.only!r}; --list shows their names")
        return 2
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    names = [name for name in PeerName if name.value not in options.without]
    deadline = time.monotonic() + options.minutes * 60
    # The servers are groups of their own: whoever ends this process means them, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load_before = os.getloadavg()
    rows: list[RowResult] = []
    is_interrupted = False
    try:
        with started(scale, names, round_count) as run:
            for row in measure_rows(run, chosen, deadline):
                rows.append(row)
                _write(options, rows, round_count, load_before)
    except (SetupFailed, *FAILURES) as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the rows so far follow")
        is_interrupted = True
    print(render(rows), end="")
    if rows:
        say(f"every figure: {_place(options)}")
    return 1 if is_interrupted or any(row.failure for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data, one round, fewer rows: does it work at all?")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name holds this regular expression")
    parser.add_argument("--rounds", type=int, default=0, help="rounds in which the peers take turns (5; quick: 1)")
    parser.add_argument("--megabytes", type=int, default=0, help="a measurement's size (200; quick: 20)")
    parser.add_argument("--minutes", type=float, default=90, help="no row begins after this time")
    parser.add_argument(
        "--without", action="append", default=[], choices=["embedded", "minio"], help="leave out a peer"
    )
    parser.add_argument("--name", default="", help="of the file in benchmarks/results (the time)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    options = parser.parse_args()
    options.name = options.name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}{'-quick' if options.quick else ''}"
    return options


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    return replace(scale, megabytes=options.megabytes) if options.megabytes else scale


def _is_chosen(case: Case, options: argparse.Namespace) -> bool:
    if case.kind is Kind.RAW_PUT and "minio" in options.without:
        return False
    # Names are aligned by blanks; a pattern need not know that.
    is_named = re.search(options.only, " ".join(case.name.split())) is not None
    return is_named and (case.is_in_quick or not options.quick)


def _place(options: argparse.Namespace) -> Path:
    return RESULTS / f"{options.name}.json"


def _write(options: argparse.Namespace, rows: Sequence[RowResult], round_count: int, load: Sequence[float]) -> None:
    """Writes what there is, after every row: a run that is cut off leaves its figures."""
    scale = _scale(options)
    result = {
        "penstock": VERSION,
        "kafka": "4.3.1",
        "finished": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "python": platform.python_version(),
            "load_before": load,
            "load_now": os.getloadavg(),
        },
        "rounds": round_count,
        "megabytes_per_measurement": scale.megabytes,
        "rows": [row.as_json() for row in rows],
    }
    RESULTS.mkdir(exist_ok=True)
    _place(options).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
