"""Compares what clients were told with what they see, by the definitions of Jepsen's Kafka workload.

Rule: every value is sent once above the client, so a value tells where it came from. What may be judged at once is
judged at once, so that the trace ends where it went wrong: an offset has one value and one timestamp for everybody and
indefinitely (inconsistent-offsets), a value has one offset (duplicate), a reader gets every offset once and in order
(poll-skip, nonmonotonic-poll), an acknowledged offset is where the value is, and never part of an error (spurious
offset 0), an end that was true is never taken back. The rest is judged at the end: lost-write, unseen, aborted read,
nonmonotonic-send.
Source of the definitions: jepsen/src/jepsen/tests/kafka.clj.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import NO_TIMESTAMP
from tests.simulation.audit.truth import Truth
from tests.simulation.clients.wire import Place, Produced
from tests.simulation.history import History

HIDDEN_SECONDS_MAX = LEDGER_SESSION_SECONDS
"""How old at most what an agent knew is when a fetch at its end was asked, for it answers later: the lease."""


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
    has_offset: bool = True
    """False: it was acknowledged as a repeat of a batch that no agent remembers the offset of."""
    append_time_ms: int = NO_TIMESTAMP
    timestamp: int = NO_TIMESTAMP
    """As its producer wrote it."""
    run: int = 0
    """Counts the producer's ids and epochs."""
    may_repeat: bool = False
    """It was on its way when the ledger was lost: a recovery may have kept it, without its sequence, and its producer
    sends it again."""


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
        self._start_known: dict[Place, int] = defaultdict(int)
        """A start that somebody was told: nobody is told an earlier one any more."""
        self._start_final: dict[Place, int] = defaultdict(int)
        self._numbers: dict[tuple[str, Place], int] = defaultdict(int)
        self._is_recovered = False
        self.records_read = 0

    # What clients report.

    def sent(self, producer: str, place: Place, *, is_ordered: bool, run: int = 0) -> Send:
        """A new value for `place`."""
        number = self._numbers[producer, place]
        self._numbers[producer, place] += 1
        value = f"{producer}:{place[0]}-{place[1]}:{number}".encode()
        send = self._sends[value] = Send(producer, place, value, number, is_ordered, run=run)
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

    def appended_before(self, sends: list[Send]) -> None:
        """One batch was answered as a repeat of one that is in the log, and that no agent remembers the offset of."""
        for send in sends:
            send.result, send.has_offset = Result.OK, False
        self._history.note(sends[0].producer, "appended before", f"{sends[0].value!r}+{len(sends)}")

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

    def start_known(self, place: Place) -> int:
        """What a question for the start that is asked now must be answered at least."""
        return self._start_known[place]

    def told_start(self, who: str, place: Place, start: int, at_least: int) -> None:
        """The start of a partition, and what was known when it was asked for (safety rule S4)."""
        self._history.note(who, "start", f"{place} {start}")
        true = self._truth.start_of(place)
        if not at_least <= start <= true:
            self._history.violation(
                f"{who} was told that {place} begins at {start}, but {at_least} was true before and {true} is (S4)"
            )
        self._start_known[place] = max(self._start_known[place], start)

    def out_of_range(self, who: str, place: Place, position: int) -> None:
        """A fetch was told that there is no such offset: it is gone, or the reader would miss it silently."""
        self._history.note(who, "out of range", f"{place} {position}")
        start = self._truth.start_of(place)
        if position >= start:
            self._history.violation(f"{who} was told that {place} has no offset {position}, but it begins at {start}")

    def deletion_refused(self, who: str, place: Place, offset: int, at_least: int) -> None:
        """DeleteRecords called an offset out of range, and the end that was known when it was asked for."""
        if offset <= at_least:
            self._history.violation(f"{who} may not delete {place} up to {offset}, though {at_least} is there (S4)")

    def deleted(self, who: str, place: Place, offset: int, low_watermark: int) -> None:
        """DeleteRecords was done up to an offset."""
        self._history.note(who, "deletes records", f"{place} {offset}: {low_watermark}")
        if low_watermark < offset:
            self._history.violation(f"{who} deleted {place} up to {offset}, and it begins at {low_watermark}")
        self.told_start(who, place, low_watermark, 0)

    def newest_timestamp(self, place: Place, offset_first: int, offset_end: int) -> int:
        """The greatest timestamp of the records in a range of offsets, as far as any client knows."""
        log = self._log[place]
        seen = [log[offset][1] for offset in range(offset_first, offset_end) if offset in log]
        sent = [send for send in self._sends.values() if send.place == place and send.result is Result.OK]
        # A topic of LogAppendTime has no times of its producers, and of an archived batch a repeat is told none.
        is_stamped = any(send.append_time_ms != NO_TIMESTAMP for send in sent)
        told = [
            send.append_time_ms if is_stamped else send.timestamp
            for send in sent
            if offset_first <= send.offset < offset_end
        ]
        return max([*seen, *told], default=NO_TIMESTAMP)

    def read(self, who: str, place: Place, position: int, records: list[tuple[int, bytes, int]]) -> None:
        """Records (offset, value, timestamp) that a reader got who wanted them from `position` on."""
        expected = position
        if position < self._start_final[place]:
            self._history.violation(f"{who} reads {place} from {position} on, which begins at a later offset by now")
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

    def recovered(self, kept: dict[Place, int]) -> None:
        """A recovery began another incarnation: below the offsets `kept` everything stays where it was; what was
        acknowledged beyond is there, perhaps elsewhere and with another append time.
        """
        self._is_recovered = True
        for place, end in kept.items():
            self._log[place] = {offset: found for offset, found in self._log[place].items() if offset < end}
            self._end_known[place] = min(self._end_known[place], end)
        for send in self._sends.values():
            end = kept[send.place]
            if self._offsets.get(send.value, -1) >= end:
                del self._offsets[send.value]
            if send.result is Result.OK and send.offset >= end:
                send.offset, send.append_time_ms = -1, NO_TIMESTAMP
            send.may_repeat = send.result is Result.UNKNOWN

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
        send = self._sends.get(value)
        if known != offset and not (send is not None and send.may_repeat):
            self._history.violation(f"duplicate: {value!r} at {known} and {offset} of {place}")
        if send is None or send.place != place:
            self._history.violation(f"{who} read {value!r} in {place}, where nobody sent it")
        elif send.result is Result.OK and send.offset >= 0 and (send.offset in log or not send.may_repeat):
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

    def settled(self, places: Iterable[Place]) -> None:
        """From now on every agent has heard of everything: nothing is read that is gone already."""
        self._start_final.update((place, self._truth.start_of(place)) for place in places)

    def judge(self, ends: dict[Place, int]) -> None:
        """When everything of every partition was read from its start to its end. What is below the start is gone; that
        it may be was judged when the start moved.
        """
        for place, end in ends.items():
            missing = sorted(set(range(self._truth.start_of(place), end)) - self._log[place].keys())
            if missing:
                self._history.violation(f"{place} ends at {end}, and {missing[:5]} (and perhaps more) was not read")
        for send in self._sends.values():
            is_seen = send.value in self._offsets
            if send.place not in ends:
                continue
            start = self._truth.start_of(send.place)
            is_gone = 0 <= send.offset < start or (not send.has_offset and start > 0)
            if send.result is Result.OK and not is_seen and not is_gone:
                self._history.violation(f"lost-write: {send.value!r}, acknowledged at {send.offset}")
            if send.result is Result.FAILED and is_seen:
                self._history.violation(f"aborted read: {send.value!r} was refused for good, and is there")
        self._judge_order()

    def _judge_order(self) -> None:
        newest: dict[tuple[str, int, Place], int] = {}
        for send in self._sends.values():
            offset = self._offsets.get(send.value)
            if offset is None or not send.is_ordered or send.may_repeat:
                continue
            # What a recovery finds it puts in order by sequences, which say nothing of other ids and epochs; and what
            # nobody acknowledged of an earlier id may land late.
            is_of_run = self._is_recovered or send.result is not Result.OK
            for line in [(send.producer, send.run, send.place)] + [(send.producer, -1, send.place)] * (not is_of_run):
                before = newest.get(line, -1)
                if offset <= before:
                    self._history.violation(
                        f"nonmonotonic-send: {send.value!r} at {offset}, an earlier value at {before}"
                    )
                newest[line] = offset
