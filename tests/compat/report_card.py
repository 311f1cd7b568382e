"""docs/COMPATIBILITY.md: what the suites came to on Penstock, beside Apache Kafka.

Rule: made from the recorded outcomes alone, so it tells neither a date nor a machine; whoever records anew writes it
anew, and a test holds it against them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.compat.outcomes import State
from tests.compat.suites import PEERS, Suite

CARD = Path(__file__).parents[2] / "docs" / "COMPATIBILITY.md"
HEAD = """\
# Other people's tests of Kafka's protocol, on Penstock

Written by `make compat` from what its last runs recorded; not by hand. Each suite is fetched from its package
registry at a pinned version, and run against Penstock with its embedded store, against three agents over etcd and
MinIO, and, as the baseline, against Apache Kafka. What is behind each failure: `tests/compat/FINDINGS.md`.

"""
NOT_RUN = "not run"
_WORDS = {State.PASSED: "passed", State.FAILED: "failed", State.SKIPPED: "skipped"}


def write_card(suites: Sequence[Suite]) -> None:
    CARD.write_text(render(suites), encoding="utf-8")


def render(suites: Sequence[Suite]) -> str:
    """The whole document."""
    lines = [f"| suite | version | {' | '.join(PEERS)} |", "|---|---|" + "---|" * len(PEERS)]
    for suite in suites:
        counts = (_counts(suite.recorded(peer)) for peer in PEERS)
        lines.append(f"| {suite.title} | {suite.version} | {' | '.join(counts)} |")
    for suite in suites:
        lines += ["", f"## {suite.title}: what does not pass everywhere", "", *_exceptions(suite)]
    return HEAD + "\n".join(lines) + "\n"


def _counts(outcomes: Mapping[str, State]) -> str:
    counts = Counter(outcomes.values())
    return ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items()) if outcomes else NOT_RUN


def _exceptions(suite: Suite) -> Iterator[str]:
    """A row for each test that did not pass with each peer."""
    if suite.told_elsewhere:
        yield suite.told_elsewhere
        return
    found = [suite.recorded(peer) for peer in PEERS]
    reasons = {**suite.known_failures(3), **suite.known_failures(1)}
    yield f"| test | {' | '.join(PEERS)} | why on Penstock |"
    yield "|---|" + "---|" * len(PEERS) + "---|"
    for name in sorted({name for outcomes in found for name in outcomes}):
        states = [outcomes.get(name) for outcomes in found]
        if any(state is not State.PASSED for state, outcomes in zip(states, found, strict=True) if outcomes):
            words = (NOT_RUN if state is None else _WORDS[state] for state in states)
            yield f"| `{name}` | {' | '.join(words)} | {reasons.get(name, '')} |"
