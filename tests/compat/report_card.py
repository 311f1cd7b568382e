"""The report card in docs/compatibility.md: the outcomes of the suites on Penstock, beside Apache Kafka.

Rule: it is made from the recorded outcomes only, so it names neither a date nor a machine. Each recording writes it
again, and a test compares it with the recordings.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.compat.outcomes import State
from tests.compat.suites import KAFKA, PEERS, Suite

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- report card -->\n", "\n<!-- end of the report card -->\n"
HEAD = """\
`make compat` writes this section from the recordings of its last runs. Each suite is fetched from its package registry
at a pinned version. It runs against one agent with the embedded store, against three agents over etcd and MinIO, and
against Apache Kafka. `tests/compat/FINDINGS.md` has the cause of each failure.

"""
NOT_RUN = "not run"
_WORDS = {State.PASSED: "passed", State.FAILED: "failed", State.SKIPPED: "skipped"}


def write_card(suites: Sequence[Suite]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + render(suites) + END + after, encoding="utf-8")


def render(suites: Sequence[Suite]) -> str:
    """The section between `BEGIN` and `END`."""
    lines = [f"| suite | version | {' | '.join(PEERS)} |", "|---|---|" + "---|" * len(PEERS)]
    for suite in suites:
        counts = (_counts(suite.recorded(peer)) for peer in PEERS)
        lines.append(f"| {suite.title} | {suite.version} | {' | '.join(counts)} |")
    for suite in suites:
        lines += ["", f"### Failed, skipped or not run: {suite.title}", "", *_exceptions(suite)]
    return HEAD + "\n".join(lines) + "\n"


def _counts(outcomes: Mapping[str, State]) -> str:
    counts = Counter(outcomes.values())
    return ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items()) if outcomes else NOT_RUN


def _exceptions(suite: Suite) -> Iterator[str]:
    """A row for each test that failed or was skipped with a peer, or that Kafka ran and Penstock did not."""
    if suite.failures_note:
        yield suite.failures_note
        return
    found = [suite.recorded(peer) for peer in PEERS]
    reasons = {**suite.known_failures(3), **suite.known_failures(1)}
    yield f"| test | {' | '.join(PEERS)} | why on Penstock |"
    yield "|---|" + "---|" * len(PEERS) + "---|"
    for name in sorted({name for outcomes in found for name in outcomes}):
        states = [outcomes.get(name) for outcomes in found]
        is_lacking = states[PEERS.index(KAFKA)] is not None and any(
            state is None for state, outcomes in zip(states, found, strict=True) if outcomes
        )
        if is_lacking or any(state in (State.FAILED, State.SKIPPED) for state in states):
            words = (NOT_RUN if state is None else _WORDS[state] for state in states)
            yield f"| `{name}` | {' | '.join(words)} | {reasons.get(name, '')} |"
