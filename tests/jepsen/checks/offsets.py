"""Whether offsets and values belong to each other: inconsistent offsets, duplicates, values that nobody sent.

Source: Jepsen, jepsen.tests.kafka (inconsistent-offsets, duplicate); its checker stops at a value without a writer,
which is reported as a phantom here.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.jepsen.checks.anomaly import Anomaly
from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import VersionOrder


def inconsistent_offsets(orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Offsets at which two or more values were seen."""
    for key, order in orders.items():
        for index, values in order.conflicts.items():
            offset, told = order.offsets[index], sorted(values)
            text = f"offset {offset} of {key} was seen with the values {_listed(told)}"
            yield Anomaly(kind="inconsistent-offsets", text=text, key=key, values=tuple(told), offsets=(offset,))


def duplicates(orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Values that stand at two or more offsets; told once more as duplicate-nonzero if two of these are not 0.

    Some clients tell offset 0 for a batch that the broker had already; this sets these cases apart.
    """
    for key, order in orders.items():
        places: dict[int, list[int]] = defaultdict(list)
        for index, value in order.placed():
            places[value].append(order.offsets[index])
        for value, offsets in places.items():
            if len(offsets) < 2:
                continue
            text = f"value {value} of {key} stands at the offsets {_listed(offsets)}"
            found = Anomaly(kind="duplicate", text=text, key=key, values=(value,), offsets=tuple(offsets))
            yield found
            if sum(offset != 0 for offset in offsets) > 1:
                yield Anomaly(kind="duplicate-nonzero", text=text, key=key, values=(value,), offsets=found.offsets)


def phantoms(evidence: Evidence) -> Iterator[Anomaly]:
    """Values that were read and that nobody had sent to this key."""
    for number, reads in enumerate(evidence.reads):
        for key, pairs in reads.items():
            writers = evidence.writers.get(key, {})
            for offset, value in pairs:
                if value not in writers:
                    text = f"{evidence.name(number)} read value {value} at offset {offset} of {key}; nobody sent it"
                    yield Anomaly(
                        kind="phantom", text=text, key=key, values=(value,), offsets=(offset,), calls=(number,)
                    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
