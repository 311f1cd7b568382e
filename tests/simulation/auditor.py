"""Compares what clients were told with what they see, by the definitions of Jepsen's Kafka workload.

Rule: every value is sent once above the client, so a value tells where it came from. What may be judged at once is
judged at once, so that the trace ends where it went wrong: an offset has one value and one timestamp for everybody and
for ever (inconsistent-offsets), a value has one offset (duplicate), a reader gets every offset once and in order
(poll-skip, nonmonotonic-poll), an acknowledged offset is where the value is, and never part of an error (spurious
offset 0), an end that was true is never taken back. The rest is judged at the end: lost-write, unseen, aborted read,
nonmonotonic-send.
Source of the definitions: jepsen/src/jepsen/tests/kafka.clj.
"""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from protocol.types import NO_TIMESTAMP
from tests.simulation.history import History
from tests.simulation.truth import Truth
from tests.simulation.wire import Place, Produced

HIDDEN_SECONDS_MAX = 16.0
"""For how long an agent that is cut off may answer from what it knows: the lease, and what a fetch may take."""


class Result(StrEnum):
    """How a send ended."""

    OK = "ok"
    FAILED = "failed"
    """It surely did not happen."""
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """One value on its way to one partition."""

    producer: str
    place: Place
    value: bytes
    number: int
    """Counts the values of this producer to this place."""
    is_ordered: bool
    """Of an idempotent producer: values become true in the order of their numbers, or not at all."""
    result: Result = Result.UNKNOWN
    offset: int = -1
    append_time_ms: int = NO_TIMESTAMP


class Auditor:
    """Of one run."""

    def __init__(self, history: History, truth: Truth) -> None:
        self._history = history
        self._truth = truth
        self._sends: dict[bytes, Send] = {}
        self._log: dict[Place, dict[int, tuple[bytes, int]]] = defaultdict(dict)
        self._offsets: dict[bytes, int] = {}
        self._end_known: dict[Place, int] = defaultdict(int)
        """An end that somebody was told: nobody is told an earlier one any more."""
        self._numbers: dict[tuple[str, Place], int] = defaultdict(int)
        self.records_read = 0

    # What clients report.

    def sent(self, producer: str, place: Place, *, is_ordered: bool) -> Send:
        """A new value for `place`."""
        number = self._numbers[producer, place]
        self._numbers[producer, place] += 1
        value = f"{producer}:{place[0]}-{place[1]}:{number}".encode()
        send = self._sends[value] = Send(producer, place, value, number, is_ordered)
        return send

    def acknowledged(self, sends: list[Send], told: Produced) -> None:
        """One batch was acknowledged."""
        for row, send in enumerate(sends):
            send.result, send.offset, send.append_time_ms = Result.OK, told.base_offset + row, told.append_time_ms
            self._end_known[send.place] = max(self._end_known[send.place], send.offset + 1)
            seen = self._log[send.place].get(send.offset)
            if told.base_offset < 0:
                self._history.violation(f"{send.value!r} is acknowledged with offset {told.base_offset}")
            elif seen is not None:
                self._compare(send, seen)
        self._history.note(sends[0].producer, "acknowledged", f"{sends[0].value!r}+{len(sends)} at {told.base_offset}")

    def refused(self, sends: list[Send], told: Produced, *, is_final: bool) -> None:
        """One batch was answered with an error; a final one says that it did not happen."""
        if told.base_offset != -1:
            self._history.violation(
                f"{sends[0].value!r}: error {told.error} with base offset {told.base_offset} instead of -1"
            )
        if is_final:
            for send in sends:
                send.result = Result.FAILED
        self._history.note(sends[0].producer, "refused", f"{sends[0].value!r}+{len(sends)}: {told.error}")

    def end_known(self, place: Place) -> int:
        """What a question asked now must be answered at least."""
        return self._end_known[place]

    def told_end(self, who: str, place: Place, end: int, at_least: int) -> None:
        """The end of a partition, and what was known when it was asked for (safety rule S4)."""
        self._history.note(who, "end", f"{place} {end}")
        if end < at_least:
            self._history.violation(f"{who} was told that {place} ends at {end}, but {at_least} was true before (S4)")
        self._end_known[place] = max(self._end_known[place], end)

    def read(self, who: str, place: Place, position: int, records: list[tuple[int, bytes, int]]) -> None:
        """Records (offset, value, timestamp) that a reader got who wanted them from `position` on."""
        expected = position
        for offset, value, timestamp in records:
            if offset != expected:
                kind = "poll-skip" if offset > expected else "nonmonotonic-poll"
                self._history.violation(f"{kind}: {who} read offset {offset} of {place}, {expected} was next")
            expected = offset + 1
            self._see(who, place, offset, value, timestamp)
        self.records_read += len(records)
        self._history.note(who, "read", f"{place} {position}..{expected}")

    def read_nothing(self, who: str, place: Place, position: int, asked_s: float) -> None:
        """A fetch found nothing: what is true for so long is not hidden from it (safety rule S4)."""
        end = self._truth.end_at(place, asked_s - HIDDEN_SECONDS_MAX)
        if position < end:
            self._history.violation(
                f"hidden: {who} finds nothing at {position} of {place}, which has reached {end} for "
                f"{HIDDEN_SECONDS_MAX} s (S4)"
            )

    def _see(self, who: str, place: Place, offset: int, value: bytes, timestamp: int) -> None:
        log = self._log[place]
        before = log.setdefault(offset, (value, timestamp))
        if before[0] != value:
            self._history.violation(
                f"inconsistent-offsets: {who} read {value!r} at {offset} of {place}, not {before[0]!r}"
            )
        elif before[1] != timestamp:
            self._history.violation(
                f"{who} read {value!r} with the timestamp {timestamp}, others with {before[1]} (S14)"
            )
        known = self._offsets.setdefault(value, offset)
        if known != offset:
            self._history.violation(f"duplicate: {value!r} at {known} and {offset} of {place}")
        send = self._sends.get(value)
        if send is None or send.place != place:
            self._history.violation(f"{who} read {value!r} in {place}, where nobody sent it")
        elif send.result is Result.OK:
            self._compare(send, (value, timestamp) if send.offset == offset else log.get(send.offset, (b"", 0)))

    def _compare(self, send: Send, seen: tuple[bytes, int]) -> None:
        value, timestamp = seen
        if value != send.value:
            self._history.violation(f"{send.value!r} was acknowledged at {send.offset}, where {value!r} is")
        elif send.append_time_ms not in {NO_TIMESTAMP, timestamp}:
            self._history.violation(
                f"{send.value!r} was acknowledged with time {send.append_time_ms} and is read with {timestamp} (S14)"
            )

    # At the end.

    def judge(self, ends: dict[Place, int]) -> None:
        """When everything of every partition was read from the first offset to its end."""
        for place, end in ends.items():
            log = self._log[place]
            if len(log) != end:
                missing = sorted(set(range(end)) - log.keys())[:5]
                self._history.violation(f"{place} ends at {end}, and {missing} (and perhaps more) was not read")
        for send in self._sends.values():
            is_seen = send.value in self._offsets
            if send.place not in ends:
                continue
            if send.result is Result.OK and not is_seen:
                self._history.violation(f"lost-write: {send.value!r}, acknowledged at {send.offset}")
            if send.result is Result.FAILED and is_seen:
                self._history.violation(f"aborted read: {send.value!r} was refused for good, and is there")
        self._judge_order()

    def _judge_order(self) -> None:
        newest: dict[tuple[str, Place], int] = {}
        for send in self._sends.values():
            offset = self._offsets.get(send.value)
            if offset is None or not send.is_ordered:
                continue
            before = newest.get((send.producer, send.place), -1)
            if offset <= before:
                self._history.violation(f"nonmonotonic-send: {send.value!r} at {offset}, an earlier value at {before}")
            newest[send.producer, send.place] = offset
