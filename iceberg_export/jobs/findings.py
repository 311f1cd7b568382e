"""A finding of a verification: its place, the error, and the section of the documents with the remedy."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from protocol.limits import VERIFY_FINDINGS_MAX

MISSING_SECTION = 'docs/operations/damage.md, "Objects are missing"'
DAMAGED_SECTION = 'docs/operations/damage.md, "A damaged file"'
METADATA_SECTION = 'docs/operations/damage.md, "A table\'s metadata is damaged"'
ROWS_SECTION = 'docs/operations/audit.md, "Verify: is every record in its table, once?"'

NOT_THERE = "it is not in the bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFinding:
    """An error in a table.

    `file`: an object's key, empty where no single object is wrong. `offset`: the first one concerned. `do`: where the
    remedy is described.
    """

    what: str
    file: str = ""
    partition: int | None = None
    offset: int | None = None
    do: str = ROWS_SECTION

    def to_dict(self) -> dict[str, Any]:
        """The finding for JSON."""
        return asdict(self)

    def line(self) -> str:
        """The finding as a line of text."""
        places = [
            self.file,
            "" if self.partition is None else f"partition {self.partition}",
            "" if self.offset is None else f"offset {self.offset}",
        ]
        return f"{', '.join(filter(None, places)) or 'the table'}: {self.what}; see {self.do}"


def some(findings: Iterable[TableFinding]) -> Iterator[TableFinding]:
    """The first `VERIFY_FINDINGS_MAX` findings, and one with the count of the others: every row may be wrong."""
    more, last = 0, None
    for count, finding in enumerate(findings):
        if count < VERIFY_FINDINGS_MAX:
            yield finding
        else:
            more, last = more + 1, finding
    if last is not None:
        yield TableFinding(file=last.file, what=f"and {more:,} more like these", do=last.do)
