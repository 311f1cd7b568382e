"""The seeds of a run, and the check that a simulated world is sound."""

from dataclasses import replace
from functools import cache

from tests.simulation.world import Verdict, run

SEEDS_QUICK = 20
"""The seeds from 1 that each run of the tests goes through."""
SEEDS = 40
"""Those that `make test-all` goes through; seeds of other tests begin behind them. `make sim-deep` has thousands."""
TRACE_LINES_SHOWN = 40


@cache
def verdict_of(seed: int) -> Verdict:
    """The verdict on a drawn world, which runs once in a process, with the end of its trace."""
    verdict = run(seed)
    return replace(verdict, trace=verdict.trace[-TRACE_LINES_SHOWN:])


def assert_sound(verdict: Verdict) -> None:
    """Fails with the seed, the first violation and the end of the trace."""
    assert not verdict.violations, f"make sim SEED={verdict.seed}: {verdict.violations[0]}\n" + "\n".join(
        verdict.trace[-TRACE_LINES_SHOWN:]
    )
