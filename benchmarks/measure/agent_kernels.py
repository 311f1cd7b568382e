"""Agents whose compiled kernels do the work: an agent has them loaded once it took enough records without them.

Rule: what is measured begins when they are there; what a start and an idle agent cost is measured without.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.cases import Case, Kind
from benchmarks.measure.exposition import KERNELS_LOADED, scrape, total
from protocol.limits import MIB, PLAIN_RECORDS_MAX

LOAD_SECONDS_MAX = 120.0
PARTITIONS = 12
"""For each agent, so that every one gets its share."""
CASE = Case(kind=Kind.PRODUCE, value_bytes=100, batch_bytes=MIB, partitions=PARTITIONS)
RECORDS = 2 * PLAIN_RECORDS_MAX
"""Of one round."""


class KernelsMissing(Exception):
    """An agent that was given records goes on without kernels."""


def load_kernels(agents: Sequence[str], produce: Callable[[Case, int], object]) -> None:
    """Have `produce` write so many records of a case until all agents, told by their HTTP ports, work by kernels.

    Raises `KernelsMissing`.
    """
    deadline = time.monotonic() + LOAD_SECONDS_MAX
    case = replace(CASE, partitions=PARTITIONS * len(agents))
    while not all(total(scrape(http), KERNELS_LOADED) for http in agents):
        if time.monotonic() > deadline:
            raise KernelsMissing(f"no kernels after {LOAD_SECONDS_MAX} s of records")
        produce(case, RECORDS)
