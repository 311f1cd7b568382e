"""`make bench`: Penstock beside Apache Kafka on this machine; docs/design/benchmarks.md explains the result.

The table goes to stdout, progress to stderr, every figure to benchmarks/results/NAME.json. Status 1: a row failed.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cases import Case, PeerName, cases
from benchmarks.report import result_file
from benchmarks.report.plots import write_plots
from benchmarks.report.results import RowResult
from benchmarks.report.table import render
from benchmarks.run import FAILURES, measure_rows, say, started
from benchmarks.schedule import Scale, run_seconds
from tools.steps import SetupFailed

FULL = Scale(
    produce_seconds=2.5,
    sustained_seconds=300,
    megabytes=200,
    latency_records=4_000,
    end_to_end_records=1_000,
    idle_seconds=20,
    chunks=1_000_000,
    groups=1_000,
    commits=200,
    workload_seconds=18,
)
QUICK = Scale(
    produce_seconds=0.3,
    sustained_seconds=20,
    megabytes=20,
    latency_records=2_000,
    end_to_end_records=300,
    idle_seconds=5,
    chunks=100_000,
    groups=50,
    commits=30,
    workload_seconds=4,
)
ROUNDS, QUICK_ROUNDS = 3, 1


def main() -> int:
    options = _options()
    try:
        if options.report:
            print(render(result_file.read(options.report)), end="")
            _plot(options.report, options)
            return 0
        before = result_file.read(options.resume) if options.resume else []
    except result_file.UnreadableResult as error:
        say(f"bench: {error}")
        return 2
    chosen = [case for case in cases() if _is_chosen(case, options)]
    if not chosen:
        say(f"no row matches {options.only!r}; --list shows their names")
        return 2
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    return _run(options, chosen, before)


def _run(options: argparse.Namespace, chosen: Sequence[Case], before: Sequence[RowResult]) -> int:
    """Measures what is chosen and not among the rows `before`, which are kept."""
    scale = _scale(options)
    round_count = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    rows = rows_to_keep(before, chosen)
    cases_left = cases_to_measure(chosen, rows)
    names = [name for name in PeerName if any(name in _peers(case, options) for case in cases_left)]
    minutes = run_seconds(cases_left, scale, names, round_count) / 60
    say(f"{len(cases_left)} rows, {round_count} rounds: about {minutes:.0f} minutes on two idle cores")
    deadline = time.monotonic() + options.minutes * 60
    # The servers are groups of their own: whoever ends this process means them, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load_before = os.getloadavg()
    is_interrupted = False
    try:
        with started(scale, names, round_count) as run:
            for row in measure_rows(run, cases_left, deadline):
                rows.append(row)
                result_file.write(options.name, in_order(rows), scale, round_count, load_before)
    except (SetupFailed, *FAILURES) as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; the rows so far follow; --resume {options.name} measures the others")
        is_interrupted = True
    print(render(in_order(rows)), end="")
    if rows:
        say(f"every figure: benchmarks/results/{options.name}.json")
        _plot(options.name, options)
    return 1 if is_interrupted or any(row.failure for row in rows) else 0


def _plot(name: str, options: argparse.Namespace) -> None:
    """Draws a result if that is asked for."""
    if options.plots:
        for path in write_plots(name, options.plots):
            say(f"plot: {path}")


def rows_to_keep(rows: Sequence[RowResult], chosen: Sequence[Case]) -> list[RowResult]:
    """All but those that failed and are chosen to be measured again."""
    names = {case.name for case in chosen}
    return [row for row in rows if not row.failure or row.case.name not in names]


def cases_to_measure(chosen: Sequence[Case], rows: Sequence[RowResult]) -> list[Case]:
    """Those of `chosen` that `rows` do not hold."""
    names = {row.case.name for row in rows}
    return [case for case in chosen if case.name not in names]


def in_order(rows: Sequence[RowResult]) -> list[RowResult]:
    """Rows in the order of the table, whenever they were measured."""
    places = {case.name: place for place, case in enumerate(cases())}
    return sorted(rows, key=lambda row: places[row.case.name])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data, one round, fewer rows: does it work at all?")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name holds this regular expression")
    parser.add_argument("--rounds", type=int, default=0, help="rounds in which the peers take turns (3; quick: 1)")
    parser.add_argument(
        "--seconds", type=float, default=0, help="about how long an unlimited producer is at work (2.5; quick: 0.3)"
    )
    parser.add_argument("--megabytes", type=int, default=0, help="what is loaded to be consumed (200; quick: 20)")
    parser.add_argument("--minutes", type=float, default=150, help="no row begins after this time (150)")
    parser.add_argument(
        "--without", action="append", default=[], choices=["embedded", "minio", "cluster"], help="leave out a peer"
    )
    parser.add_argument("--name", default="", help="of the file in benchmarks/results (the time)")
    parser.add_argument("--resume", metavar="NAME", default="", help="measure what a result lacks, and add it there")
    parser.add_argument("--report", metavar="NAME", default="", help="print the table of a result, measure nothing")
    parser.add_argument("--plots", metavar="DIR", type=Path, help="write plots of the result there, as SVG")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    options = parser.parse_args()
    quick = "-quick" if options.quick else ""
    options.name = options.name or options.resume or f"{datetime.now(UTC):%Y%m%d-%H%M%S}{quick}"
    return options


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    return replace(
        scale,
        produce_seconds=options.seconds or scale.produce_seconds,
        megabytes=options.megabytes or scale.megabytes,
    )


def _peers(case: Case, options: argparse.Namespace) -> list[PeerName]:
    return [name for name in case.peers if name.value not in options.without]


def _is_chosen(case: Case, options: argparse.Namespace) -> bool:
    # Names are aligned by blanks; a pattern need not know that.
    is_named = re.search(options.only, case.plain_name) is not None
    return is_named and bool(_peers(case, options)) and (case.is_in_quick or not options.quick)


if __name__ == "__main__":
    sys.exit(main())
