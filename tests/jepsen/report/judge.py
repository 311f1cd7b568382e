"""Judges a history that lies in a file, and draws what was found.

    python -m tests.jepsen.report.judge HISTORY [--report HTML] [--subscribed] [--no-ww-deps] [--commit-placement]

The status is 0 if the history is valid, 1 if it is not, 2 if it is no history.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from tests.jepsen.checks.checker import Options, Verdict, check
from tests.jepsen.history.history import History, HistoryError
from tests.jepsen.report.report import render


def judge(path: Path, options: Options, report: Path | None = None) -> Verdict:
    """The verdict on the history in a file; the report is written if it is given a place.

    Raises HistoryError: it is no history; the message names the line.
    """
    history = History.read(path)
    verdict = check(history, options)
    if report is not None:
        report.write_text(render(history, verdict, f"History {path.parent.name}/{path.name}"), encoding="utf-8")
    return verdict


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(prog="python -m tests.jepsen.report.judge", description="Judge a history of the clients.")
    parser.add_argument("history", type=Path, help="a JSON object on each line: see tests/jepsen/history/history.py")
    parser.add_argument("--report", type=Path, help="where to write a page with drawings")
    parser.add_argument("--subscribed", action="store_true", help="some consumers subscribed to topics")
    parser.add_argument("--no-ww-deps", action="store_true", help="do not look for cycles of interleaved writes")
    parser.add_argument("--commit-placement", action="store_true", help="all topics place records at commit")
    given = parser.parse_args(arguments)
    options = Options(
        sub_via=frozenset({"assign", "subscribe"} if given.subscribed else {"assign"}),
        ww_deps=not given.no_ww_deps,
        commit_placement=given.commit_placement,
    )
    try:
        verdict = judge(given.history, options, given.report)
    except (HistoryError, OSError) as error:
        print(f"no history: {error}", file=sys.stderr)
        return 2
    print(verdict.summary())
    return 0 if verdict.is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
