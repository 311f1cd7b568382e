"""`make compat`: other people's tests against Penstock, with one agent and with three, and a report.

    python -m tests.compat [SUITE...] [--agents 1] [--only WORDS] [--folder PATH]
                           [--kafka | --bootstrap HOST:PORT | --one-address]

--kafka runs them against Apache Kafka, for the baseline. --one-address runs tests of groups and transactions against
three agents behind one address, which relay requests of groups, and records nothing. Otherwise the outcome of each test
is recorded, and the report card in docs/compatibility.md is written again. The exit status is 1 if a test failed that
the suite's known_failures.txt does not name, or if one passed that it names.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.compat.all_suites import SUITES
from tests.compat.kafka_target import kafka_target
from tests.compat.outcomes import Outcome, judge
from tests.compat.report_card import PAGE, write_card
from tests.compat.suites import AGENTS, KAFKA, PEERS, Part, Suite
from tests.compat.target import Target, penstock_target
from tools.steps import SetupFailed


def main() -> int:
    options = _options()
    if options.card:
        write_card(SUITES)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended
    folder = options.folder or Path(tempfile.mkdtemp(prefix="penstock-compat-"))
    print(f"logs: {folder}", flush=True)
    is_passed = True
    try:
        for suite in [suite for suite in SUITES if suite.name in options.suites]:
            if options.one_address and not suite.of_groups:
                continue  # conversations with one agent, which others answer behind one address
            for agents_count in [suite.kafka_brokers_count] if options.kafka else options.agents:
                is_passed &= _run_suite(suite, agents_count, folder / f"{suite.name}-{agents_count}", options)
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    except SetupFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    return 0 if is_passed else 1


def _run_suite(suite: Suite, agents_count: int, folder: Path, options: argparse.Namespace) -> bool:
    """Runs a suite, says its outcomes as they come, and records them where it was run as a whole."""
    only = options.only or (suite.of_groups if options.one_address else "")
    peer = options.bootstrap or (KAFKA if options.kafka else AGENTS[agents_count])
    if options.one_address:
        peer = f"{peer} behind one address"
    print(f"\n{suite.title} {suite.version}: {peer}", flush=True)
    outcomes: list[Outcome] = []
    for number, part in enumerate(suite.parts):
        if part.has_issuer and options.kafka:
            continue
        with _target(part, folder / f"broker-{number}", agents_count, options) as target:
            for outcome in part.run(target, folder / f"part-{number}", only):
                print(outcome, flush=True)
                outcomes.append(outcome)
    verdict = judge(outcomes, {} if options.kafka else suite.known_failures(agents_count))
    print("\n".join(verdict.lines()), flush=True)
    if peer in PEERS:
        suite.record(peer, verdict.outcomes, is_whole=not options.only)
        write_card(SUITES)
        print(f"written: {PAGE}", flush=True)
    return verdict.is_passed or options.kafka


@contextmanager
def _target(part: Part, folder: Path, agents_count: int, options: argparse.Namespace) -> Iterator[Target]:
    """The broker that was named, else Penstock or Kafka, for this part alone."""
    if options.bootstrap:
        yield Target(bootstrap=options.bootstrap, agents_count=agents_count)
        return
    start = (
        kafka_target
        if options.kafka
        else partial(penstock_target, has_issuer=part.has_issuer, has_one_address=options.one_address)
    )
    with start(folder, agents_count, part.settings, has_racks=part.has_racks, protocol=part.protocol) as target:
        yield target


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make compat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [suite.name for suite in SUITES]
    parser.add_argument("suites", nargs="*", type=_suite, default=names, metavar="SUITE", help=", ".join(names))
    parser.add_argument("--agents", type=int, action="append", choices=list(AGENTS), help="with so many agents alone")
    parser.add_argument("--only", default="", metavar="WORDS", help="tests whose names begin with one of these: a,b")
    parser.add_argument("--folder", type=Path, help="where data and logs go, a temporary folder by default")
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument("--bootstrap", default="", help="a broker that runs already, instead of Penstock")
    peers.add_argument("--one-address", action="store_true", help="three agents behind one address; of groups alone")
    peers.add_argument("--kafka", action="store_true", help="run against Apache Kafka, and record the baseline")
    parser.add_argument("--card", action="store_true", help="only write the report card in docs/compatibility.md")
    options = parser.parse_args(arguments)
    if options.one_address:
        options.agents = [max(AGENTS)]
    options.agents = options.agents or ([1] if options.bootstrap else list(AGENTS))
    return options


def _suite(name: str) -> str:
    """The name of a suite; not by `choices`, which would hold the default against them as one."""
    names = [suite.name for suite in SUITES]
    if name not in names:
        raise argparse.ArgumentTypeError(f"there is no suite {name}, but {', '.join(names)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
