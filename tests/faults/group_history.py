"""What consumers told while they ran, by group: who held which partition when, what was processed, what was committed.

Rule: pure. The lines are those of `tests.faults.consumers.line_protocol`; times are microseconds of one machine's
clock. Lines of one consumer come in their order, those of several in any.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Processed:
    """Records `[first, end)` of a partition."""

    us: int
    first: int
    end: int


@dataclass(slots=True, kw_only=True)
class Stint:
    """A partition in one member's hands."""

    consumer: str
    partition: int
    began_us: int
    generation: int
    processed: list[Processed] = field(default_factory=list[Processed])
    ended_us: int | None = None


@dataclass(slots=True, kw_only=True)
class Commit:
    """How far a member said that the group has come. Without an acknowledgement it may have happened all the same."""

    consumer: str
    partition: int
    offset: int
    sent_us: int
    stint: Stint | None
    """During which it was sent."""
    acknowledged_us: int | None = None
    error: str = ""


@dataclass(slots=True, kw_only=True)
class GroupHistory:
    """Of one group. `has_generations`: they are the group's, not each member's own epochs (KIP-848)."""

    has_generations: bool
    stints: dict[int, list[Stint]] = field(default_factory=lambda: defaultdict[int, list[Stint]](list))
    commits: dict[int, list[Commit]] = field(default_factory=lambda: defaultdict[int, list[Commit]](list))
    """Both by partition."""
    reached: dict[int, int] = field(default_factory=dict[int, int])
    """The largest offset of each partition that was committed and acknowledged."""
    served_us: dict[str, int] = field(default_factory=dict[str, int])
    """When each member's newest commit that was acknowledged had been sent."""
    generations: dict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](list))
    """As each member told them."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """With the library's name; refused commits too."""
    wrong: list[str] = field(default_factory=list[str])
    """What no consumer should ever say."""
    _open: dict[tuple[str, int], Stint] = field(default_factory=dict[tuple[str, int], Stint])
    _waiting: dict[tuple[str, int, int], Commit] = field(default_factory=dict[tuple[str, int, int], Commit])

    def add(self, consumer: str, kind: str, us: int, words: list[str]) -> None:
        """Take in one line."""
        match kind:
            case "G":
                self.generations[consumer].append(int(words[0]))
            case "A":
                for partition in map(int, words[1:]):
                    self._end(consumer, partition, us)
                    self._begin(consumer, partition, us, int(words[0]))
            case "V" | "L":
                for partition in map(int, words[1:]):
                    self._end(consumer, partition, us)
            case "R":
                self._process(consumer, int(words[0]), Processed(us, int(words[1]), int(words[2])))
            case "C" | "K" | "F":
                self._commit(consumer, kind, us, words)
            case "D":
                for partition in [partition for holder, partition in self._open if holder == consumer]:
                    self._end(consumer, partition, us)
            case _:
                self._error(consumer, words[0])

    def holders(self) -> dict[int, set[str]]:
        """Members by the partitions that they have in hand; a member that was thrown out may not know it yet."""
        holders: dict[int, set[str]] = {}
        for consumer, partition in self._open:
            holders.setdefault(partition, set()).add(consumer)
        return holders

    def _begin(self, consumer: str, partition: int, us: int, generation: int) -> None:
        stint = Stint(consumer=consumer, partition=partition, began_us=us, generation=generation)
        self.stints[partition].append(stint)
        self._open[consumer, partition] = stint

    def _end(self, consumer: str, partition: int, us: int) -> None:
        stint = self._open.pop((consumer, partition), None)
        if stint is not None:
            stint.ended_us = us

    def _process(self, consumer: str, partition: int, processed: Processed) -> None:
        stint = self._open.get((consumer, partition))
        if stint is None:
            self.wrong.append(f"{consumer} processed {processed} of partition {partition}, which it does not hold")
        else:
            stint.processed.append(processed)

    def _commit(self, consumer: str, kind: str, us: int, words: list[str]) -> None:
        number, partition = int(words[0]), int(words[1])
        if kind == "C":
            stint = self._open.get((consumer, partition))
            commit = Commit(consumer=consumer, partition=partition, offset=int(words[2]), sent_us=us, stint=stint)
            self.commits[partition].append(commit)
            self._waiting[consumer, number, partition] = commit
            return
        commit = self._waiting.pop((consumer, number, partition))
        if kind == "K":
            commit.acknowledged_us = us
            self.reached[partition] = max(self.reached.get(partition, 0), commit.offset)
            self.served_us[consumer] = commit.sent_us
        else:
            commit.error = words[2]
            self._error(consumer, words[2])

    def _error(self, consumer: str, error: str) -> None:
        if error.startswith(("wrong-value", "out-of-order")):
            self.wrong.append(f"{consumer}: {error}")
        self.errors[f"{library_of(consumer)} {error}"] += 1


def library_of(consumer: str) -> str:
    """The library that a consumer's name names: GROUP-LIBRARY-NUMBER."""
    return consumer.split("-")[1]


def add_lines(histories: dict[str, GroupHistory], lines: Iterable[str]) -> None:
    """Take in what consumers told, whose names begin with their group's."""
    for line in lines:
        consumer, kind, us, *words = line.split(" ")
        histories[consumer.split("-")[0]].add(consumer, kind, int(us), words)
