"""The table of a run: for each load the longest pauses that its clients met."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What the clients of one load met."""

    scenario: str
    records: int
    """Acknowledged ones."""
    ack_s: float
    """The longest time until a record was acknowledged."""
    transaction_s: float
    rebalances: int
    seconds: float
    """How long the load lasted."""
    limit_s: float | None
    """For `ack_s`, on a machine where nothing else runs."""

    @property
    def is_too_long(self) -> bool:
        return self.limit_s is not None and self.ack_s > self.limit_s


@dataclass(slots=True)
class Pauses:
    """All of a run."""

    rows: list[Pause] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Other measured times, each a line."""

    def lines(self) -> Iterator[str]:
        if self.rows:
            yield f"{'scenario':<40} records  longest ack  limit  transaction  rebalances   took"
        for row in self.rows:
            limit = "-" if row.limit_s is None else f"{row.limit_s:.0f} s"
            yield (
                f"{row.scenario:<40}{row.records:>8}{row.ack_s:>11.1f} s{limit:>7}{row.transaction_s:>11.1f} s"
                f"{row.rebalances:>12}{row.seconds:>5.0f} s{' TOO LONG' if row.is_too_long else ''}"
            )
        yield from self.notes
