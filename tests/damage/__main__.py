"""Damages every kind of stored object, and runs agents over what is left: `make damage`.

    python -m tests.damage [--flips 200] [--others 20] [--seed 1] [--folder PATH]

`--flips`: of single bits for each kind; `--others`: truncations, removals and swaps, of each so many; `--only` chooses
kinds whose names have a word. Exit status 1 where something does not hold. Folders and logs stay.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.damage.cluster_lives import sweep_etcd, sweep_intake
from tests.damage.damages import Kind
from tests.damage.lives import Plan, Tally, sweep
from tests.damage.table_reads import sweep_tables
from tests.damage.watched_lives import WATCHED, sweep_watched

FLIPS_AT_ONCE = 20
"""Of each kind in one life: more topics would make it slow, not find more."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make damage", description=__doc__)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--others", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a word of a kind's name, as in snapshot")
    parser.add_argument("--folder", type=Path, help="where data and logs go")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-damage-"))
    kinds = [kind for kind in Kind if arguments.only.lower() in kind.lower()]
    print(f"seed {arguments.seed}, folder {folder}", flush=True)
    tally, reported = Tally(), 0
    rounds = max(1, -(-arguments.flips // FLIPS_AT_ONCE))
    for number in range(rounds):
        flips = arguments.flips * (number + 1) // rounds - arguments.flips * number // rounds
        others = arguments.others * (number + 1) // rounds - arguments.others * number // rounds
        # Every second time under an agent that has read what is damaged.
        plan = Plan(flips=flips, others=others, is_running=number % 2 == 1)
        seed = arguments.seed * 1_000 + number
        sweep(folder / str(number), plan, seed, tally, kinds)
        sweep_tables(folder / str(number), plan, random.Random(seed), tally, kinds)
        if Kind.OBJECT in kinds:
            sweep_intake(folder / str(number) / "bucket", plan, random.Random(seed), tally)
        if plan.is_running and any(kind in kinds for kind in WATCHED):
            sweep_watched(folder / str(number) / "watched", plan, random.Random(seed), tally, kinds)
        if Kind.ETCD in kinds:
            sweep_etcd(folder / str(number) / "etcd", plan, random.Random(seed), tally)
        print(f"round {number + 1} of {rounds}: {len(tally.failures)} failures", flush=True)
        for _, _, what in tally.failures[reported:]:
            print(f"  {what}", flush=True)
        reported = len(tally.failures)
    text = tally.as_text()
    (folder / "report.txt").write_text(f"{text}\n", encoding="utf-8")
    print(text)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
