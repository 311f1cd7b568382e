"""The recorded conversations as a suite: a case that is answered as Kafka does passes.

Rule: a difference that docs/compatibility.md lists word for word is a known failure of its case. Any other difference
has a name that no list knows. Cases that need an API which is not served are skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from protocol.api_versions import API_VERSIONS
from tests.compat.outcomes import Outcome, State
from tests.compat.protocol_diff.cases import CASES
from tests.compat.protocol_diff.comparison import compare, read_allowed, read_recorded
from tests.compat.protocol_diff.messages import kafka_definitions
from tests.compat.protocol_diff.steps import Case
from tests.compat.suites import KAFKA, Part, Suite
from tests.compat.target import Target, provided_java


def run_cases(target: Target, _folder: Path, only: str) -> Iterator[Outcome]:
    """Runs the cases whose names begin with one of the words in `only`."""
    report = compare(
        target.bootstrap.partition(",")[0],
        [case for case in CASES if case.name.startswith(tuple(only.split(",")))],
        kafka_definitions(provided_java().jars),
        served={row.name for row in API_VERSIONS},
        recorded=read_recorded(),
        allowed=read_allowed(),
        is_any_leader=target.agents_count > 1,
    )
    yield from (Outcome(name=name, state=State.PASSED) for name in report.equal)
    yield from (Outcome(name=name, state=State.FAILED, note="as docs/compatibility.md says") for name in report.listed)
    for each in report.not_listed:
        yield Outcome(name=f"{each.case}:not-listed", state=State.FAILED, note=str(each))
    for each in report.gone:
        yield Outcome(name=f"{each.case}:no-difference", state=State.FAILED, note=str(each))
    for name, apis in report.not_served.items():
        yield Outcome(name=name, state=State.SKIPPED, note=f"lacks {', '.join(sorted(apis))}")


class _ProtocolDiff(Suite):
    """Its known failures are rows of docs/compatibility.md."""

    def known_failures(self, agents_count: int) -> dict[str, str]:
        return {row.case: "docs/compatibility.md" for row in read_allowed()}

    def recorded(self, peer: str) -> dict[str, State]:
        """Kafka's answers are the measure; Penstock's are held against the list by every run of the tests."""
        served, listed = {row.name for row in API_VERSIONS}, self.known_failures(1)
        return {case.name: _state(case, served, listed) if peer != KAFKA else State.PASSED for case in CASES}

    def record(self, peer: str, outcomes: Sequence[Outcome], *, is_whole: bool) -> None:
        """Nothing: what is recorded is the list."""


def _state(case: Case, served: set[str], listed: Mapping[str, str]) -> State:
    if case.needs - served:
        return State.SKIPPED
    return State.FAILED if case.name in listed else State.PASSED


PROTOCOL_DIFF = _ProtocolDiff(
    name="protocol_diff",
    title="protocol-diff: conversations recorded from Kafka",
    version="4.3.1",
    folder=Path(__file__).parent,
    parts=(Part(run=run_cases),),
    failures_note="A conversation with a difference counts as failed. "
    "One that needs an API which is not served counts as skipped. "
    "[Answers that differ](#answers-that-differ) lists each difference with its reason.",
)
