"""Clients of four kinds write and read in transactions while things break, and a checker judges what they saw.

    python -m tests.jepsen [--seed 1] [--minutes 5] [--clients librdkafka,java-v1,java-v2,franz-go]
        [--target penstock|kafka|mock] [--only txn] [--via assign] [--placement commit] [--no-faults] [--report PATH]

Exit status 1 on any anomaly. The history, the report and all logs are in the report's folder, a temporary one by
default. The positive control is `kafka`, the negative one `mock` (with librdkafka alone): it must be found at fault.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from coordinator.configs.topic_configs import AT_COMMIT, AT_PRODUCE, PLACEMENT
from tests.jepsen.checks.checker import Options, Verdict, check
from tests.jepsen.history.history import Function, History
from tests.jepsen.report.report import render
from tests.jepsen.run import Run, RunSettings
from tests.jepsen.targets import TARGETS
from tests.jepsen.workload.libraries import CLIENTS

FUNCTIONS: tuple[Function, ...] = ("txn", "send", "poll")
PLACINGS: tuple[Function, ...] = ("assign", "subscribe")


def main() -> int:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    folder: Path = arguments.report or Path(tempfile.mkdtemp(prefix="penstock-jepsen-"))
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} has something in it: name a folder that is new or empty by --report", file=sys.stderr)
        return 2
    placings = _functions(arguments.via, PLACINGS)
    # Nobody but Penstock knows the config.
    topic_configs = {PLACEMENT: AT_COMMIT} if arguments.placement == AT_COMMIT else {}
    settings = RunSettings(
        seed=arguments.seed,
        seconds=arguments.minutes * 60,
        clients=arguments.clients.split(","),
        folder=folder,
        functions=_functions(arguments.only, FUNCTIONS),
        placings=placings,
        has_faults=not arguments.no_faults,
        rate=arguments.rate,
        topic_configs=topic_configs,
        tells_offsets=arguments.placement != AT_COMMIT,
    )
    print(f"history, report and logs: {folder}", flush=True)
    run = Run(settings, TARGETS[arguments.target](folder / arguments.target, arguments.seed))
    try:
        path = run.run()
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    title = f"{arguments.target}: seed {arguments.seed}, {arguments.minutes:g} minutes, {arguments.clients}"
    options = Options(
        sub_via=frozenset(f for f in ("assign", "subscribe") if f in placings),
        commit_placement=arguments.placement == AT_COMMIT,
    )
    return _judge(path, title, options, run.problems)


def _judge(path: Path, title: str, options: Options, problems: Sequence[str]) -> int:
    """Check the history, write the page and print the verdict; returns the exit status."""
    history = History.read(path)
    verdict: Verdict = check(history, options)
    counts = verdict.call_counts.items()
    lines = [f"{client or '-':<12} {f:<10} {kind:<5} {count:6}" for (f, kind, client), count in sorted(counts)]
    lines += [f"PROBLEM {problem}" for problem in problems]
    if not verdict.has_final_read:
        lines.append("PROBLEM nobody read everything at the end")
    text = "\n".join([*lines, verdict.summary()])
    page = path.with_name("report.html")
    page.write_text(render(history, verdict, title), encoding="utf-8")
    print(f"{text}\n{page}")
    return 0 if verdict.is_valid and verdict.has_final_read and not problems else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make jepsen", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="one process for each name; a name may come twice")
    parser.add_argument("--target", choices=list(TARGETS), default="penstock")
    parser.add_argument("--only", help="txn, send or poll, with commas; all by default")
    parser.add_argument("--via", help="assign or subscribe; both by default")
    parser.add_argument(
        "--placement",
        choices=[AT_PRODUCE, AT_COMMIT],
        default=AT_PRODUCE,
        help=f"{PLACEMENT} of all topics; at commit no write cycle (G0) is let pass",
    )
    parser.add_argument("--rate", type=float, default=20, help="calls a second of each client, at most")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--report", type=Path, help="folder of history, report and logs")
    return parser


def _functions(text: str | None, all_of_them: tuple[Function, ...]) -> tuple[Function, ...]:
    """The functions that a list with commas names; None names all."""
    chosen = tuple(f for f in get_args(Function) if text is None or f in text.split(","))
    return tuple(f for f in chosen if f in all_of_them)


if __name__ == "__main__":
    sys.exit(main())
