"""What the tests of a suite came to, and which of their failures are known.

Rule: a list of known failures may only shrink. A failure that it does not name is wrong, and so is a line whose test
passes: it must go. Every line says why, and tests/compat/FINDINGS.md says more.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

NOTE_CHARACTERS_MAX = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class State(Enum):
    """What became of one test."""

    PASSED = "PASS"
    FAILED = "FAIL"
    SKIPPED = "SKIP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one test, after `seconds`; `note` says why it failed or was skipped."""

    name: str
    state: State
    seconds: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        note = " ".join(_COLOURS.sub("", self.note).split())[:NOTE_CHARACTERS_MAX]
        return f"{self.state.value} {self.name} {self.seconds:.1f} {note}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcomes of a run beside the list of known failures."""

    outcomes: Sequence[Outcome]
    unexpected: Sequence[str]
    """Failed, and not listed."""
    now_passes: Sequence[str]
    """Listed, and passed."""

    @property
    def is_passed(self) -> bool:
        return self.count(State.PASSED) > 0 and not self.unexpected and not self.now_passes

    def count(self, state: State) -> int:
        return Counter(outcome.state for outcome in self.outcomes)[state]

    def lines(self) -> Iterator[str]:
        """What is wrong, and the counts."""
        noted = {outcome.name: outcome.note for outcome in self.outcomes}
        yield from (f"UNEXPECTED {name} {noted[name]}" for name in self.unexpected)
        yield from (f"NOW-PASSES {name}: remove its line from the list of known failures" for name in self.now_passes)
        yield ", ".join(
            f"{self.count(state)} {word}"
            for state, word in ((State.PASSED, "passed"), (State.FAILED, "failed"), (State.SKIPPED, "skipped"))
        )


def judge(outcomes: Sequence[Outcome], known: Mapping[str, str]) -> Verdict:
    """Holds a run's outcomes against the known failures. A test that was run twice counts as it came out last."""
    last = {outcome.name: outcome for outcome in outcomes}
    return Verdict(
        outcomes=list(last.values()),
        unexpected=[name for name, each in last.items() if each.state is State.FAILED and name not in known],
        now_passes=[name for name, each in last.items() if each.state is State.PASSED and name in known],
    )


def read_known(file: Path, agents_count: int) -> dict[str, str]:
    """The known failures with so many agents: their reasons by the tests' names.

    A line is `AGENTS NAME REASON`, AGENTS being `1`, `3` or `*` for any; `#` begins a comment. Raises `ValueError` for
    a line without a reason, or a test that is named twice.
    """
    known: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) != 3 or words[0] not in {"1", "3", "*"}:
            raise ValueError(f"{file.name}: a line is AGENTS (1, 3 or *), a test's name and a reason: {line}")
        agents, name, reason = words
        if agents not in {"*", str(agents_count)}:
            continue
        if name in known:
            raise ValueError(f"{file.name}: {name} is named twice")
        known[name] = reason
    return known


def read_recorded(file: Path) -> dict[str, State]:
    """What came of each test on Apache Kafka: lines of `PASS|FAIL|SKIP NAME`."""
    rows = (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines())
    return {name: State(state) for state, name in rows}


def write_recorded(outcomes: Mapping[str, State], file: Path) -> None:
    """Writes what `read_recorded` reads, in the order of names."""
    rows = sorted(outcomes.items())
    file.write_text("".join(f"{state.value} {name}\n" for name, state in rows), encoding="utf-8")
