"""What one run of librdkafka's test-runner says of its tests.

Rule: a test of a broker that passed without doing anything counts as skipped: in quick mode some do nothing.
"""

import re
from collections.abc import Iterator, Sequence

from tests.compat.outcomes import Outcome, State

_ROW = re.compile(
    r"^\|(?:\x1b\[\d*m)*\s*(\d{4}_\S+)\s*\|\s*(PASSED|FAILED|SKIPPED|RUNNING)\s*\|\s*([\d.]+)s\s*(?:\x1b\[\d*m)*\|(.*)$",
    re.MULTILINE,
)
_FAILURE = re.compile(r'^\S*### Test "[^\n]* ###$\n(.+)$', re.MULTILINE)
"""What a test that failed says before its process may end in disorder."""
_STATES = {"PASSED": State.PASSED, "FAILED": State.FAILED, "SKIPPED": State.SKIPPED, "RUNNING": State.FAILED}
IDLE_SECONDS_MAX = 0.05
IDLE_SWITCHES_MAX = 15
"""Context switches of a test that spoke to no broker: about five. Twenty or more where one answered at once."""


def read_report(text: str, wanted: Sequence[str], otherwise: str, *, may_be_idle: bool = False) -> Iterator[Outcome]:
    """The outcomes of the tests `wanted`; those that the text does not tell of failed for the reason `otherwise`.

    `may_be_idle` says that they need not speak to a broker.
    """
    told: set[str] = set()
    why = _FAILURE.search(text)
    otherwise = f"{why[1]} ({otherwise})" if why is not None else otherwise
    for name, state, seconds, note in _ROW.findall(text):
        if name not in wanted:
            continue
        told.add(name)
        if not may_be_idle and state == "PASSED" and float(seconds) < IDLE_SECONDS_MAX and _was_idle(name, text):
            yield Outcome(name=name, state=State.SKIPPED, note="passed without doing anything")
        else:
            yield Outcome(
                name=name,
                state=_STATES[state],
                seconds=float(seconds),
                note="" if state == "PASSED" else note.strip() or otherwise,
            )
    yield from (Outcome(name=name, state=State.FAILED, note=otherwise) for name in wanted if name not in told)


def _was_idle(name: str, text: str) -> bool:
    if re.search(rf"\[{name}\s*/.*?\] Created +kafka instance", text):
        return False
    used = re.search(rf"\[{name}\s*/.*?resource usage summary.*?, (\d+) Voluntary", text)
    return used is not None and int(used[1]) < IDLE_SWITCHES_MAX
