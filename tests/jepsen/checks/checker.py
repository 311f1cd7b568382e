"""Judges a history: all checks, one verdict.

Rule: every anomaly is told; `Options` say which of them a run may show. What a broker of Kafka's protocol may do:
- int-send-skip and write cycles (G0), and cycles that take a ww edge (G1c-ww): transactions' writes interleave. Where
  all topics have commit placement, a transaction's records are placed when it commits, so neither can be: every value
  that it reads was placed before, every record that it writes is placed at that one moment.
- poll-skip and nonmonotonic-poll if consumers subscribe: a rebalance may take a partition away and give it back.

Source: Jepsen, jepsen.tests.kafka, allowed error types.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from tests.jepsen.checks.anomaly import MEANINGS, Anomaly, Kind
from tests.jepsen.checks.cycles import cycles
from tests.jepsen.checks.measurements import Consumed, Lag, consumed_again, worst_lags
from tests.jepsen.checks.offsets import duplicates, inconsistent_offsets, phantoms
from tests.jepsen.checks.order import external_polls, external_sends, internal_polls, internal_sends
from tests.jepsen.checks.visibility import aborted_reads, lost_writes, precommitted_reads, torn_transactions, unseen
from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import VersionOrder, version_orders
from tests.jepsen.history.history import History

SHOWN_MAX = 32
"""Anomalies of a kind that a verdict keeps."""

INTERLEAVED: frozenset[Kind] = frozenset(
    {"G0", "G0-process", "G0-realtime", "G1c-ww", "G1c-ww-process", "G1c-ww-realtime"}
)
REBALANCED: frozenset[Kind] = frozenset({"poll-skip", "nonmonotonic-poll"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run was set up.

    `sub_via`: how consumers got their partitions. `ww_deps`: whether to look for cycles of writes as well.
    `commit_placement`: whether all topics place a transaction's records when it commits.
    """

    sub_via: frozenset[Literal["assign", "subscribe"]] = frozenset({"assign"})
    ww_deps: bool = True
    commit_placement: bool = False

    def allowed(self) -> frozenset[Kind]:
        """The kinds that are no errors."""
        return (
            frozenset[Kind]({"int-send-skip"})
            | (frozenset() if self.commit_placement else INTERLEAVED)
            | (REBALANCED if "subscribe" in self.sub_via else frozenset())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The anomalies of one kind: how many, and those that tell most."""

    count: int
    is_error: bool
    shown: Sequence[Anomaly]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be said of a history.

    `found`: by kind, errors first. `consumed_again` and `lags` are no errors. `call_counts`: by function, type and
    client. `info_causes`: why nobody knows how transactions ended.
    """

    found: Mapping[Kind, Found]
    orders: Mapping[str, VersionOrder] = field(repr=False)
    consumed_again: Sequence[Consumed]
    lags: Sequence[Lag]
    call_counts: Mapping[tuple[str, str, str], int]
    info_causes: Mapping[str, int]
    has_final_read: bool

    @property
    def errors(self) -> list[Kind]:
        return [kind for kind, found in self.found.items() if found.is_error]

    @property
    def is_valid(self) -> bool:
        return not self.errors

    def summary(self) -> str:
        """A line for each kind that was found, errors first."""
        lines = [
            f"{'ERROR' if found.is_error else 'allowed'} {kind}: {found.count} ({MEANINGS[kind]})"
            + (f"\n    {found.shown[0].text}" if found.is_error else "")
            for kind, found in self.found.items()
        ]
        return "\n".join(["valid" if self.is_valid else "NOT VALID", *lines])


def check(history: History, options: Options) -> Verdict:
    """The verdict on a history."""
    evidence = Evidence.of(history)
    orders = version_orders(evidence)
    by_kind: dict[Kind, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies(history, evidence, orders, has_ww=options.ww_deps):
        by_kind[anomaly.kind].append(anomaly)
    return Verdict(
        found=_ranked(by_kind, options.allowed()),
        orders=orders,
        consumed_again=consumed_again(evidence),
        lags=worst_lags(evidence),
        call_counts=Counter((call.completed.f, call.completed.type, call.invoked.client) for call in history.calls),
        info_causes=Counter(_causes(history)),
        has_final_read=any(call.completed.final and call.completed.type == "ok" for call in history.calls),
    )


def anomalies(
    history: History, evidence: Evidence, orders: Mapping[str, VersionOrder], *, has_ww: bool
) -> Iterable[Anomaly]:
    """Every anomaly of every kind."""
    lost, aborted = list(lost_writes(evidence, orders)), list(aborted_reads(evidence))
    return chain(
        inconsistent_offsets(orders),
        duplicates(orders),
        phantoms(evidence),
        aborted,
        precommitted_reads(evidence),
        lost,
        torn_transactions(evidence, orders, lost, aborted),
        unseen(evidence),
        internal_polls(evidence, orders),
        external_polls(evidence, orders),
        internal_sends(evidence, orders),
        external_sends(evidence, orders),
        cycles(history, evidence, orders, has_ww=has_ww),
    )


def _ranked(by_kind: Mapping[Kind, list[Anomaly]], allowed: frozenset[Kind]) -> dict[Kind, Found]:
    """Errors before what is allowed, in the order of `MEANINGS`; of each kind the most telling first."""
    kinds: list[Kind] = [kind for kind in MEANINGS if by_kind.get(kind)]
    kinds.sort(key=lambda kind: kind in allowed)
    return {
        kind: Found(
            count=len(by_kind[kind]),
            is_error=kind not in allowed,
            shown=sorted(by_kind[kind], key=lambda each: (len(each.steps), -abs(each.delta), each.calls))[:SHOWN_MAX],
        )
        for kind in kinds
    }


def _causes(history: History) -> Iterator[str]:
    """Why nobody knows how a call ended, once for each."""
    for call in history.calls:
        if call.completed.type == "info":
            yield call.completed.error or "never ended"
