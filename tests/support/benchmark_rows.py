"""Rows as a run would have found them."""

from benchmarks.cases import Case, Kind, PeerName
from benchmarks.report.results import RowResult


def made_row(kind: Kind, *, failure: str = "", **figures: dict[str, float]) -> RowResult:
    """One round each of the peers that are named: `kafka={"mb_per_s": 100.0}`."""
    rounds = {PeerName(name): [values] for name, values in figures.items()}
    return RowResult(case=Case(kind=kind, value_bytes=1000), rounds=rounds, failure=failure)
