"""The arithmetic of figures: medians, means, ratios, geometric means.

Rule: a ratio is always Penstock / Kafka, whether more or less of it is better.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

Figures = Mapping[str, float]
"""One measurement: metric -> value, the unit is the end of the metric's name."""


def medians(rounds: Sequence[Figures]) -> dict[str, float]:
    """The median of each metric over the rounds that have it."""
    names = dict.fromkeys(name for figures in rounds for name in figures)
    return {name: statistics.median(figures[name] for figures in rounds if name in figures) for name in names}


def means(turns: Sequence[Figures]) -> dict[str, float]:
    """The mean of each metric over turns, which all have the same metrics."""
    return {name: statistics.fmean(figures[name] for figures in turns) for name in turns[0]}


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """`ours` / `theirs`; None where one is missing or nothing can be divided."""
    return ours / theirs if ours is not None and theirs else None


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The mean of ratios, in which 2 and 0.5 cancel out. None of none; 0 where one is 0."""
    if not ratios:
        return None
    if min(ratios) <= 0:
        return 0.0
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
