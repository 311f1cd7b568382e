"""How old records are when they become visible: in tables, by asking the catalog; in a stream, when they are written.

Rule: a record's time is the one that its producer gave it, just before it handed it over. Records of a transaction
are visible when it, and what was open before it, has ended: that is part of their age, and told apart as well. What
never became visible is infinitely old.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.error import URLError

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.agreement.compare import OFFSET_BITS, View, place_of, places_of
from tests.agreement.records import Numbers, columns_of, heads, identity

OFFSETS = "penstock.offsets"
ANSWER_SECONDS_MAX = 5.0
TABLE_GOAL_MS, STREAM_GOAL_MS = 60_000, 5_000
NEVER_MS = np.iinfo(np.int64).max

Milliseconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Of the records that were produced in a span of time, in ms."""

    count: int
    unseen: int
    p50_ms: float
    p99_ms: float
    p99_ended_ms: float
    """Since the end of their transactions was known to their producers."""

    @classmethod
    def of(cls, ages: Milliseconds, ended: Milliseconds) -> "Ages":
        count = len(ages)
        p50, p99 = np.percentile(ages, [50, 99], method="higher") if count else (np.inf, np.inf)
        p99_ended = float(np.percentile(ended, 99, method="higher")) if count else np.inf
        return cls(
            count=count,
            unseen=int(np.isinf(ages).sum()),
            p50_ms=float(p50),
            p99_ms=float(p99),
            p99_ended_ms=p99_ended,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Offsets of a partition's log that became visible at a time."""

    topic: str
    partition: int
    first: int
    end: int
    seen_ms: int


@dataclass(slots=True, kw_only=True)
class TablePoller:
    """Loads the tables of some topics by the REST catalog, each once a second, in a thread of its own."""

    topics: Sequence[str]
    http: Callable[[], str]
    """Of an agent that runs."""
    seen: list[Seen] = field(default_factory=list[Seen])
    failures: int = 0
    _snapshots: set[int] = field(default_factory=set[int])
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="table-poller", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            began_s = time.monotonic()
            for topic in self.topics:
                try:
                    url = f"http://{self.http()}/iceberg/v1/namespaces/lake/tables/{topic}"
                    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
                        metadata = json.loads(answer.read())["metadata"]
                except (URLError, OSError, StopIteration, ValueError):
                    self.failures += 1  # an agent was killed: another one is asked next
                else:
                    self._learn(topic, metadata.get("snapshots") or [], time.time_ns() // 1_000_000)
            self._is_over.wait(max(0.0, 1 - (time.monotonic() - began_s)))

    def _learn(self, topic: str, snapshots: Iterable[dict[str, object]], now_ms: int) -> None:
        for snapshot in snapshots:
            number, summary = snapshot["snapshot-id"], snapshot["summary"]
            assert isinstance(number, int)
            assert isinstance(summary, dict)
            if number in self._snapshots:
                continue
            self._snapshots.add(number)
            for partition, (first, end) in json.loads(summary.get(OFFSETS, "{}")).items():
                self.seen.append(Seen(topic=topic, partition=int(partition), first=first, end=end, seen_ms=now_ms))


def table_times(view: View, seen: Sequence[Seen]) -> Numbers:
    """When each record of a view became visible in its table, by what the poller saw; ms, or `NEVER_MS`."""
    spans = np.array(sorted(map(_span, seen)), dtype=np.int64).reshape(-1, 3)
    times: Numbers = np.full(len(view), NEVER_MS, dtype=np.int64)
    if len(spans):
        rows = np.searchsorted(spans[:, 0], view.places, side="right") - 1
        is_inside = (rows >= 0) & (view.places < spans[rows, 1])
        times[is_inside] = spans[rows[is_inside], 2]
    return times


def stream_times(view: View, batches: Iterable[tuple[int, pa.Table]]) -> Numbers:
    """When each record of a view was written by the streaming query, the first time; ms, or `NEVER_MS`."""
    times: Numbers = np.full(len(view), NEVER_MS, dtype=np.int64)
    for done_ms, table in batches:
        if not len(view) or not table.num_rows:
            continue
        places = places_of(table)
        rows = np.minimum(np.searchsorted(view.places, places), len(view) - 1)
        rows = rows[view.places[rows] == places]
        times[rows] = np.minimum(times[rows], done_ms)
    return times


def ages(view: View, times: Numbers, transactions: pa.Table, span_ms: tuple[int, int]) -> Ages:
    """Of the view's records that were produced in this span of time. `times`: when each became visible."""
    produced = view.table["timestamp"].to_numpy()
    chosen = (produced >= span_ms[0]) & (produced < span_ms[1])
    ended = _ended(view.table["value"].filter(pa.array(chosen)), transactions)
    seen = np.where(times[chosen] == NEVER_MS, np.inf, times[chosen].astype(np.float64))
    return Ages.of(seen - produced[chosen], seen - ended)


def of_topics(view: View, topics: Sequence[str]) -> View:
    """The part of a view that is about these topics."""
    logs = {place_of(topic, 0, 0) >> OFFSET_BITS >> 12 for topic in topics}
    kept = np.isin(view.places >> OFFSET_BITS >> 12, np.array(sorted(logs), dtype=np.int64))
    return View(view.name, view.table.filter(pa.array(kept)), view.places[kept])


def _span(seen: Seen) -> tuple[int, int, int]:
    first, end = (place_of(seen.topic, seen.partition, offset) for offset in (seen.first, seen.end))
    return first, end, seen.seen_ms


def _ended(values: pa.ChunkedArray, transactions: pa.Table) -> Numbers:
    """When the end of each record's transaction was known."""
    producer, transaction = columns_of(heads(values), ["producer", "transaction"])
    wanted = identity(producer, transaction, np.zeros(len(producer), dtype=np.int64))
    producer, transaction = (transactions[name].to_numpy().astype(np.int64) for name in ("producer", "transaction"))
    noted = identity(producer, transaction, np.zeros(transactions.num_rows, dtype=np.int64))
    order = np.argsort(noted)
    rows = order[np.searchsorted(noted[order], wanted)]
    ended: Numbers = transactions["ended_ms"].to_numpy()[rows]
    return ended
