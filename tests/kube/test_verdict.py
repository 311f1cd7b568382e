"""Each thing that can be wrong with a topic's records is found, and nothing else is."""

from collections.abc import Callable

import pytest

from tests.kube.pauses import Pause, Pauses
from tests.kube.verdict import TopicHistory, problems


def clean() -> TopicHistory:
    """Two acknowledged records, one of an aborted transaction, and one whose outcome no client knows."""
    return TopicHistory(
        "t",
        sent={"a", "b", "aborted", "unknown"},
        acknowledged={(0, 0): "a", (1, 0): "b"},
        aborted={"aborted"},
        stored={(0, 0): "a", (1, 0): "b", (1, 1): "unknown"},
        reads=[(0, 0), (1, 0), (1, 1)],
    )


def lose(history: TopicHistory) -> None:
    del history.stored[0, 0]


def replace(history: TopicHistory) -> None:
    history.stored[0, 0], history.stored[1, 0] = "b", "a"


def lose_repeat(history: TopicHistory) -> None:
    history.without_offset.add("c")


def repeat(history: TopicHistory) -> None:
    history.stored[0, 1] = "a"


def show_aborted(history: TopicHistory) -> None:
    history.stored[0, 1] = "aborted"


def invent(history: TopicHistory) -> None:
    history.stored[0, 1] = "c"


def skip(history: TopicHistory) -> None:
    history.reads.remove((1, 0))


def read_again(history: TopicHistory) -> None:
    history.reads.append((1, 0))


def test_a_clean_history_has_no_problem() -> None:
    assert problems(clean()) == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lose, "t: 1 acknowledged, and lost: a at (0, 0)"),
        (replace, "t: 2 acknowledged, and lost: a at (0, 0), b at (1, 0)"),
        (lose_repeat, "t: 1 acknowledged without an offset, and lost: c"),
        (repeat, "t: 1 stored more than once: a"),
        (show_aborted, "t: 1 aborted, and shown: aborted"),
        (invent, "t: 1 stored, and never sent: c"),
        (skip, "t: 1 acknowledged, and not read by the group: (1, 0)"),
        (read_again, "t: 1 read twice without a rebalance: (1, 0)"),
    ],
)
def test_a_problem_is_named(damage: Callable[[TopicHistory], None], problem: str) -> None:
    history = clean()
    damage(history)
    assert problems(history) == [problem]


def test_a_record_may_be_read_again_after_a_rebalance() -> None:
    history = clean()
    read_again(history)
    history.rebalances = 1
    assert problems(history) == []


def test_the_table_marks_a_pause_that_is_too_long() -> None:
    row = Pause(scenario="s", records=9, ack_s=3.5, transaction_s=1.0, rebalances=0, seconds=20.0, limit_s=3)
    header, line, note = Pauses([row], ["a note"]).lines()
    assert line.endswith("TOO LONG")
    assert header.index("longest ack") + len("longest ack") == line.index("3.5 s") + len("3.5 s")
    assert note == "a note"
