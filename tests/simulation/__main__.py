"""Runs seeds from the command line: `python -m tests.simulation 7`, `1..200`, or `--deep`.

Rule: one seed is told in full, with its trace where it failed; of many, those that failed and how to see them again.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.world import Verdict, run

DEEP_SEEDS = range(1, 2_501)
PROCESSES = 2
PROGRESS_SEEDS = 100
TRACE_LINES = 120


def main() -> int:
    """Exit 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="1..200", help="one seed, or FIRST..LAST")
    parser.add_argument("--deep", action="store_true", help=f"{len(DEEP_SEEDS)} seeds")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args()
    if options.deep:
        return _many(DEEP_SEEDS, options.processes)
    first, _, last = options.seeds.partition("..")
    if not last:
        return _one(int(first))
    return _many(range(int(first), int(last) + 1), options.processes)


def _one(seed: int) -> int:
    verdict = run(seed)
    print(verdict.plan)
    for kind, times in sorted(verdict.counts.items()):
        print(f"{times:8} {kind}")
    if verdict.violations:
        print("\n".join(verdict.trace[-TRACE_LINES:]))
    print(_line(verdict))
    print(f"digest of its history: {verdict.digest}")
    return 1 if verdict.violations else 0


def _many(seeds: range, processes: int) -> int:
    began_s = time.monotonic()
    failed: list[int] = []
    steps = records = 0
    with ProcessPoolExecutor(processes) as pool:
        for done, verdict in enumerate(_in_order(pool, seeds), 1):
            steps += verdict.steps
            records += verdict.records_read
            if verdict.violations:
                failed.append(verdict.seed)
                print(_line(verdict), flush=True)
            if done % PROGRESS_SEEDS == 0 or done == len(seeds):
                print(
                    f"{done} of {len(seeds)} seeds, {len(failed)} failed, {steps} callbacks, {records} records read, "
                    f"{time.monotonic() - began_s:.0f} s",
                    flush=True,
                )
    if failed:
        print(f"see them again with: make sim SEED={failed[0]}   (all: {' '.join(map(str, failed))})")
    return 1 if failed else 0


def _in_order(pool: ProcessPoolExecutor, seeds: Iterable[int]) -> Iterator[Verdict]:
    return pool.map(run, seeds, chunksize=5)


def _line(verdict: Verdict) -> str:
    faults = ", ".join(verdict.plan.faults) or "no faults"
    outcome = verdict.violations[0] if verdict.violations else "sound"
    return f"seed {verdict.seed}: {outcome} [{verdict.steps} callbacks, {verdict.virtual_s:.0f} s, {faults}]"


if __name__ == "__main__":
    sys.exit(main())
