"""What is wrong with a view of a log: gaps, duplicates, differences, records that were never committed.

Rule: pure. Views are Arrow tables as `tests.agreement.records.VIEW` says, rows in any order; all is done by columns, so
that ten million rows take seconds. A finding counts what it found, and shows a few. Two functions: `compare` holds a
view against another one; `audit` holds it against what producers noted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tests.agreement.records import (
    ABORTED,
    COMMITTED,
    HEAD,
    KEY_FIRST,
    NO_KEY,
    Numbers,
    are_ours,
    columns_of,
    heads,
    identities,
    identity,
    name_of,
    topic_number,
)

EXAMPLES_MAX = 5
OFFSET_BITS, PARTITION_BITS = 40, 12
"""A place is one number: topic, partition below 2**12, offset below 2**40."""
COMPARED = ("timestamp", "key", "value")

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`view` shows `count` records that are `what`."""

    view: str
    what: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.view}: {self.count:,} {self.what}: {', '.join(self.examples)}{more}"


@dataclass(frozen=True, slots=True)
class View:
    """A view in order of places: `places` ascend, and `table` has their rows."""

    name: str
    table: pa.Table
    places: Numbers

    @classmethod
    def of(cls, name: str, table: pa.Table) -> "View":
        places = places_of(table)
        order = np.argsort(places, kind="stable")
        return cls(name, table.take(pa.array(order)), places[order])

    def __len__(self) -> int:
        return len(self.places)

    def below(self, ends: Mapping[tuple[str, int], int]) -> "View":
        """What lies before these ends of topics' partitions; nothing of those that are not named."""
        bounds = {place_of(topic, partition, 0) >> OFFSET_BITS: end for (topic, partition), end in ends.items()}
        logs, inverse = np.unique(self.places >> OFFSET_BITS, return_inverse=True)
        limits = np.array([bounds.get(int(log), 0) for log in logs], dtype=np.int64)
        kept = (self.places & (1 << OFFSET_BITS) - 1) < limits[inverse] if len(logs) else np.empty(0, dtype=bool)
        return View(self.name, self.table.filter(pa.array(kept)), self.places[kept])


def place_of(topic: str, partition: int, offset: int) -> int:
    return (topic_number(topic) << PARTITION_BITS | partition) << OFFSET_BITS | offset


def text_of(place: int) -> str:
    log, offset = place >> OFFSET_BITS, place & (1 << OFFSET_BITS) - 1
    return f"topic {log >> PARTITION_BITS} partition {log & (1 << PARTITION_BITS) - 1} offset {offset}"


def places_of(table: pa.Table) -> Numbers:
    """The place of each row."""
    topics = pc.dictionary_encode(table["topic"].combine_chunks() if table.num_rows else pa.array([], pa.string()))
    encoded = topics.combine_chunks() if isinstance(topics, pa.ChunkedArray) else topics
    numbers = np.array([topic_number(name) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
    topic = numbers[encoded.indices.to_numpy(zero_copy_only=False)] if table.num_rows else np.empty(0, dtype=np.int64)
    partition = table["partition"].to_numpy().astype(np.int64)
    offset = table["offset"].to_numpy().astype(np.int64)
    places: Numbers = (topic << PARTITION_BITS | partition) << OFFSET_BITS | offset
    return places


def compare(reference: View, other: View) -> list[Finding]:
    """What `other` shows otherwise than `reference`: gaps, records too many, duplicates, and differences by column."""
    found = Findings(other.name)
    is_once = is_first(other.places)
    found.add("shown more than once", map(text_of, other.places[~is_once]), int((~is_once).sum()))
    kept = np.flatnonzero(is_once)
    once = other.places[kept]
    wanted = reference.places
    gaps = wanted[~np.isin(wanted, once, assume_unique=True)]
    found.add(f"missing (gaps, beside {reference.name})", _runs(gaps, wanted), len(gaps))
    beyond = once[~np.isin(once, wanted, assume_unique=True)]
    found.add(f"that {reference.name} does not show", map(text_of, beyond), len(beyond))

    _, left, right = np.intersect1d(wanted, once, assume_unique=True, return_indices=True)
    one, two = reference.table.take(pa.array(left)), other.table.take(pa.array(kept[right]))
    places = wanted[left]
    for column in COMPARED:
        rows = np.flatnonzero(_differs(one[column], two[column]))
        found.add(f"with another {column}", _differences(places, one, two, column, rows), len(rows))
    rows = np.flatnonzero(headers_differ(one["headers"], two["headers"]))
    found.add("with other headers", _differences(places, one, two, "headers", rows), len(rows))
    return found.all


def headers_differ(one: pa.ChunkedArray, two: pa.ChunkedArray) -> Mask:
    """Row by row whether headers differ: their number, a key or a value. None and an empty list are the same."""
    lengths = [pc.fill_null(pc.list_value_length(each), 0).to_numpy() for each in (one, two)]
    differs: Mask = lengths[0] != lengths[1]
    same = pa.array(np.flatnonzero(~differs & (lengths[0] > 0)))
    if not len(same):
        return differs
    parents = np.repeat(same.to_numpy(), lengths[0][same.to_numpy()])
    children = [pc.list_flatten(each.take(same)) for each in (one, two)]
    for name in ("key", "value"):
        fields = [pc.struct_field(each, name) for each in children]
        differs[parents[_differs(*fields)]] = True
    return differs


def audit(view: View, transactions: pa.Table) -> list[Finding]:
    """What is wrong with a view by what its values say, and by what became of their transactions.

    Every transaction that sent a record has to be noted, one that was being sent at the end as `UNKNOWN`.
    """
    found = Findings(view.name)
    is_ours = are_ours(view.table["value"])
    found.add("whose value says nothing", map(text_of, view.places[~is_ours]), int((~is_ours).sum()))
    view = View(view.name, view.table.filter(pa.array(is_ours)), view.places[is_ours])
    told = heads(view.table["value"])
    _audit_places(view, told, found)
    ids = np.sort(identities(told))
    again = ids[~is_first(ids)]
    found.add("of which one record stands at several offsets", map(name_of, again), len(again))

    producers, numbers = _noted(transactions, "producer", "transaction")
    noted = identity(producers, numbers, np.zeros(len(transactions), dtype=np.int64))
    order = np.argsort(noted)
    noted = noted[order]
    outcomes, counts = (column[order] for column in _noted(transactions, "outcome", "count"))
    ids = np.unique(ids)
    owners, numbers = ids >> 23 << 23, ids & (1 << 23) - 1
    rows = np.minimum(np.searchsorted(noted, owners), max(len(noted) - 1, 0))
    is_known = noted[rows] == owners if len(noted) else np.zeros(len(ids), dtype=bool)
    found.add("of transactions that nobody noted", map(name_of, ids[~is_known]), int((~is_known).sum()))
    ids, rows, numbers = ids[is_known], rows[is_known], numbers[is_known]
    beyond = ids[numbers >= counts[rows]]
    found.add("that nobody sent", map(name_of, beyond), len(beyond))
    aborted = ids[outcomes[rows] == ABORTED]
    found.add("of aborted transactions", map(name_of, aborted), len(aborted))

    shown = np.bincount(rows[numbers < counts[rows]], minlength=len(noted))
    lacking = (outcomes == COMMITTED) & (shown < counts)
    missing = int((counts - shown)[lacking].sum())
    found.add("acknowledged as committed and missing", _missing(ids, noted[lacking], counts[lacking]), missing)
    torn = (outcomes != COMMITTED) & (outcomes != ABORTED) & (shown > 0) & (shown < counts)
    found.add("shown of transactions that are only partly there", map(name_of, noted[torn]), int(shown[torn].sum()))
    return found.all


def _noted(transactions: pa.Table, *names: str) -> list[Numbers]:
    return [transactions[name].to_numpy().astype(np.int64) for name in names]


def _audit_places(view: View, told: NDArray[np.void], found: "Findings") -> None:
    """Whether each record lies where it was sent, with the time and the key that it was sent with."""
    topic, partition, milliseconds = columns_of(told, ["topic", "partition", "milliseconds"])
    astray = (topic << PARTITION_BITS | partition) != view.places >> OFFSET_BITS
    found.add("in another partition than they were sent to", map(text_of, view.places[astray]), int(astray.sum()))
    late = milliseconds != view.table["timestamp"].to_numpy()
    found.add("with another timestamp than they were sent with", map(text_of, view.places[late]), int(late.sum()))
    keys = pc.fill_null(view.table["key"], NO_KEY)
    wrong = _differs(keys, pc.binary_slice(view.table["value"], KEY_FIRST, HEAD.size).cast(pa.binary()))
    found.add("with another key than they were sent with", map(text_of, view.places[wrong]), int(wrong.sum()))


class Findings:
    """Findings about one view; what counts nothing is none."""

    def __init__(self, view: str) -> None:
        self._view = view
        self.all: list[Finding] = []

    def add(self, what: str, examples: Iterator[str], count: int) -> None:
        if count:
            shown = tuple(text for text, _ in zip(examples, range(EXAMPLES_MAX), strict=False))
            self.all.append(Finding(view=self._view, what=what, count=count, examples=shown))


def is_first(ascending: Numbers) -> Mask:
    """Which of ascending numbers are not the same as the one before."""
    first = np.ones(len(ascending), dtype=bool)
    first[1:] = ascending[1:] != ascending[:-1]
    return first


def _differs(one: pa.ChunkedArray, two: pa.ChunkedArray) -> Mask:
    """Row by row whether they differ; two nulls do not."""
    is_null = [pc.is_null(each).to_numpy() for each in (one, two)]
    values: Mask = pc.fill_null(pc.not_equal(one, two), False).to_numpy()
    differs: Mask = values | (is_null[0] != is_null[1])
    return differs


def _runs(gaps: Numbers, wanted: Numbers) -> Iterator[str]:
    """Missing places as runs of neighbours among those that are wanted."""
    if not len(gaps):
        return
    positions = np.searchsorted(wanted, gaps)
    breaks = np.flatnonzero(np.diff(positions) > 1) + 1
    for first, end in zip([0, *breaks], [*breaks, len(gaps)], strict=True):
        count = int(end) - int(first)
        yield text_of(int(gaps[first])) + (f" and the {count - 1:,} behind it" if count > 1 else "")


def _differences(
    places: Numbers, one: pa.Table, two: pa.Table, column: str, rows: Sequence[int] | Rows
) -> Iterator[str]:
    for row in rows:
        was, came = one[column][int(row)].as_py(), two[column][int(row)].as_py()
        yield f"{text_of(int(places[row]))} ({_short(came)} for {_short(was)})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _missing(ids: Numbers, owners: Numbers, counts: Numbers) -> Iterator[str]:
    for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
        first, end = np.searchsorted(ids, [owner, owner + count])
        lacking = np.setdiff1d(np.arange(count), ids[first:end] - owner)
        yield f"{name_of(owner + int(lacking[0]))} and {len(lacking) - 1:,} more of {count:,}"
