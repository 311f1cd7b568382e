"""A history, indexed: who wrote and who read what, and which transactions took place for certain.

Rule: built in one pass over the calls, and never changed; calls go by their number in `History.calls`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.jepsen.history.history import Call, History, MicroPoll, MicroSend, Op, Pair

Reads = Mapping[str, Sequence[Pair]]
"""By key what a call read, over all its polls, in their order."""

Writes = Mapping[str, Sequence[MicroSend]]
"""By key what a call sent, in the order of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the checks look up.

    `writers`: key -> value -> the call that sent it. `readers`: key -> value -> the first ok call that read it; what
    is not there was read by no ok call. `took_place`: by call, whether its sends must have been committed, for it is
    ok, or info and an ok call read one of its values.
    """

    calls: Sequence[Call]
    reads: Sequence[Reads]
    writes: Sequence[Writes]
    writers: Mapping[str, Mapping[int, int]]
    readers: Mapping[str, Mapping[int, int]]
    took_place: Sequence[bool]

    @classmethod
    def of(cls, history: History) -> Self:
        writers: dict[str, dict[int, int]] = defaultdict(dict)
        readers: dict[str, dict[int, int]] = defaultdict(dict)
        reads, writes = [], []
        for number, call in enumerate(history.calls):
            reads.append(reads_of(call.completed))
            writes.append(writes_of(call.completed))
            for key, sends in writes[-1].items():
                writers[key].update((send.value, number) for send in sends)
            if call.completed.type == "ok":
                for key, pairs in reads[-1].items():
                    readers_of_key = readers[key]
                    for _, value in pairs:
                        readers_of_key.setdefault(value, number)
        return cls(
            calls=history.calls,
            reads=reads,
            writes=writes,
            writers=dict(writers),
            readers=dict(readers),
            took_place=[_took_place(call.completed, readers) for call in history.calls],
        )

    def is_read(self, key: str, value: int) -> bool:
        """Whether an ok call read it."""
        return value in self.readers.get(key, ())

    def name(self, number: int) -> str:
        """How a call is named in texts."""
        op = self.calls[number].completed
        return f"T{op.index} ({op.type}, process {op.process})"


def reads_of(op: Op) -> Reads:
    polls = [micro.records for micro in op.micros if isinstance(micro, MicroPoll) and micro.records]
    if len(polls) <= 1:
        return polls[0] if polls else {}
    together: dict[str, list[Pair]] = {}
    for records in polls:
        for key, pairs in records.items():
            together.setdefault(key, []).extend(pairs)
    return together


def writes_of(op: Op) -> Writes:
    writes: dict[str, list[MicroSend]] = {}
    for micro in op.micros:
        if isinstance(micro, MicroSend):
            writes.setdefault(micro.key, []).append(micro)
    return writes


def _took_place(op: Op, readers: Mapping[str, Mapping[int, int]]) -> bool:
    if op.type != "info":
        return op.type == "ok"
    return any(send.value in readers.get(send.key, ()) for send in op.sends())
