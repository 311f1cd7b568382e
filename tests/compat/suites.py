"""What a suite of other people's tests is to the run: parts that say the outcomes of their tests as they come.

Rule: a part runs against an address and leaves nothing behind but its logs, in the folder it is given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.compat.access import PLAINTEXT
from tests.compat.outcomes import Outcome, State, read_known, read_recorded, write_recorded
from tests.compat.target import Target

Run = Callable[[Target, Path, str], Iterator[Outcome]]
"""Runs the tests whose names begin with one of the words in the third argument, separated by commas; "" for all."""

KAFKA: Final = "Kafka 4.3.1"
AGENTS: Final = {1: "one agent", 3: "three agents"}
"""Penstock with so many agents, by the name of the column in the report card."""
PEERS: Final = (KAFKA, *AGENTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tests of a suite that run against one broker."""

    run: Run
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """What these tests expect of the broker's configs beyond `tests.compat.target.SETTINGS`."""
    has_racks: bool = False
    """Whether each of several brokers is in a rack of its own."""
    protocol: str = PLAINTEXT
    """The security protocol of the listener."""
    has_issuer: bool = False
    """Whether clients bring tokens of an issuer. Not for Apache Kafka, whose Java would need another truststore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite, with what is known of it in its folder."""

    name: str
    title: str
    version: str
    folder: Path
    parts: tuple[Part, ...]
    kafka_brokers_count: int = 1
    """How many brokers of Apache Kafka give the baseline."""
    of_groups: str = ""
    """What chooses its tests of groups and transactions, as `--only` does; "" for all of its tests."""
    failures_note: str = ""
    """Where its failures are listed, if not in the report card."""

    def known_failures(self, agents_count: int) -> dict[str, str]:
        """The failures that are known, with their reasons."""
        return read_known(self.folder / "known_failures.txt", agents_count)

    def recorded(self, peer: str) -> dict[str, State]:
        """What the last runs with a peer came to, by test; empty where there was none."""
        file = self._recording(peer)
        return read_recorded(file) if file.exists() else {}

    def record(self, peer: str, outcomes: Sequence[Outcome], *, is_whole: bool) -> None:
        """Keeps what a run with a peer came to; one that is not whole leaves the other tests as they were recorded."""
        others = {} if is_whole else self.recorded(peer)
        write_recorded({**others, **{each.name: each.state for each in outcomes}}, self._recording(peer))

    def _recording(self, peer: str) -> Path:
        return self.folder / f"{peer.lower().replace(' ', '-')}.txt"
