"""What a run found: rows with every raw figure, and their form as JSON.

Rule: holds no path, no address and no name of the machine, so that a result may be committed and compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.cases import Case, PeerName
from benchmarks.report.statistics import medians, ratio

LOWER_IS_BETTER = (
    *("_ms", "_s_per_gb", "_us_per_record", "_mib", "_percent", "start_s", "load_s", "form_s", "entries_per_s"),
    *("bytes_per_chunk", "object_requests", "_per_gib", "gets_per_object", "_per_tib", "_of_floor", "_failed", "_kib"),
    "_of_unauthorized",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """One row: the rounds of each peer. `failure`: why it could not be measured to its end, else empty."""

    case: Case
    rounds: dict[PeerName, list[dict[str, float]]] = field(default_factory=dict)
    failure: str = ""

    def figure(self, peer: PeerName, metric: str) -> float | None:
        """The median of a metric over the rounds."""
        return medians(self.rounds.get(peer, [])).get(metric)

    def ratio(self, peer: PeerName, metric: str) -> float | None:
        """`peer` / Kafka."""
        return ratio(self.figure(peer, metric), self.figure(PeerName.KAFKA, metric))

    def as_json(self) -> dict[str, object]:
        case = self.case
        return {
            "name": case.plain_name,
            "kind": case.kind.value,
            "value_bytes": case.value_bytes,
            "partitions": case.partitions,
            "compression": case.compression,
            "batch_bytes": case.batch_bytes,
            "linger_ms": case.linger_ms,
            "rate": case.rate,
            "agents": case.agents,
            "flush_interval_ms": case.flush_interval_ms,
            "transaction_ms": case.transaction_ms,
            "failure": self.failure,
            "medians": {peer.value: _rounded(medians(rounds)) for peer, rounds in self.rounds.items()},
            "rounds": {peer.value: [_rounded(figures) for figures in rounds] for peer, rounds in self.rounds.items()},
        }


def read_row(row: Mapping[str, object], cases: Mapping[str, Case]) -> RowResult | None:
    """What `as_json` wrote; `cases`: by plain name. None for a row that is not measured any more.

    Raises `TypeError`, `ValueError` or `KeyError` where this is no such row.
    """
    case = cases.get(str(row["name"]))
    found = row["rounds"]
    if case is None or not isinstance(found, dict):
        return None
    rounds = {
        PeerName(peer): [{str(metric): float(value) for metric, value in figures.items()} for figures in measured]
        for peer, measured in found.items()
    }
    return RowResult(case=case, rounds=rounds, failure=str(row["failure"]))


def is_lower_better(metric: str) -> bool:
    return metric.endswith(LOWER_IS_BETTER)


def ratios(rows: Sequence[RowResult], peer: PeerName, metric: str) -> list[float]:
    """The ratios to Kafka of the rows that have them."""
    found = (row.ratio(peer, metric) for row in rows)
    return [value for value in found if value is not None]


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in figures.items()}
