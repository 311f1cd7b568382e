"""Each thing that can be wrong with a topic's records is found, and nothing else is."""

from collections.abc import Callable

import pytest

from tests.kube.pauses import Pause, Pauses
from tests.kube.verdict import AGAIN_SECONDS_MAX, Read, TopicHistory, problems


def clean() -> TopicHistory:
    """Three acknowledged records, one of an aborted transaction, and one whose outcome no client knows."""
    return TopicHistory(
        "t",
        sent=["a", "b", "aborted", "unknown", "d"],
        acknowledged=[((0, 0), "a"), ((1, 0), "b"), ((0, 2), "d")],
        aborted={"aborted"},
        stored={(0, 0): "a", (1, 0): "b", (1, 1): "unknown", (0, 2): "d"},
        reads=[
            [Read(1.0, (0, 0), "a"), Read(4.0, (0, 2), "d")],
            [Read(2.0, (1, 0), "b"), Read(3.0, (1, 1), "unknown")],
        ],
        committed={0: 3, 1: 2},
    )


def lose(history: TopicHistory) -> None:
    del history.stored[0, 0]
    history.reads[0] = history.reads[0][1:]


def acknowledge_two_at_one_position(history: TopicHistory) -> None:
    history.sent.append("e")
    history.acknowledged.insert(0, ((0, 0), "e"))


def replace(history: TopicHistory) -> None:
    history.stored[0, 0] = "unknown"
    history.stored[1, 1] = "a"
    history.reads = [
        [Read(1.0, (0, 0), "unknown"), Read(4.0, (0, 2), "d")],
        [Read(2.0, (1, 0), "b"), Read(3.0, (1, 1), "a")],
    ]


def lose_repeat(history: TopicHistory) -> None:
    history.without_offset.add("c")


def repeat(history: TopicHistory) -> None:
    history.stored[0, 1] = "a"


def reorder(history: TopicHistory) -> None:
    history.sent.remove("d")
    history.sent.insert(0, "d")


def show_aborted(history: TopicHistory) -> None:
    history.stored[1, 2] = "aborted"
    history.sent.remove("aborted")
    history.sent.append("aborted")


def show_aborted_to_the_group(history: TopicHistory) -> None:
    history.reads[0] = [*history.reads[0][:1], Read(3.0, (0, 1), "aborted"), *history.reads[0][1:]]


def change_for_the_group(history: TopicHistory) -> None:
    history.reads[1] = [Read(2.0, (1, 0), "a"), *history.reads[1][1:]]


def invent(history: TopicHistory) -> None:
    history.stored[0, 1] = "c"


def skip(history: TopicHistory) -> None:
    history.reads[1] = history.reads[1][1:]


def read_again(history: TopicHistory) -> None:
    history.reads[1] = [*history.reads[1], Read(5.0, (1, 1), "unknown")]


def read_backwards(history: TopicHistory) -> None:
    history.reads[0] = history.reads[0][::-1]


def forget_the_commit(history: TopicHistory) -> None:
    del history.committed[0]


def commit_more(history: TopicHistory) -> None:
    """The next member would pass a record."""
    history.sent.append("later")
    history.stored[1, 3] = "later"
    history.committed[1] = 4


def commit_less(history: TopicHistory) -> None:
    history.committed[1] = 1


COMMITTED = "t: 1 committed at another position than read"


def test_a_clean_history_has_no_problem() -> None:
    assert problems(clean()) == []


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (
            lose,
            ["t: 1 acknowledged, and lost: a at (0, 0)", "t: 1 acknowledged, and not read by the group: (0, 0)"],
        ),
        (
            replace,
            ["t: 1 acknowledged, and lost: a at (0, 0)", "t: 1 stored out of order: a behind b at (1, 1)"],
        ),
        (acknowledge_two_at_one_position, ["t: 1 acknowledged, and lost: e at (0, 0)"]),
        (lose_repeat, ["t: 1 acknowledged without an offset, and lost: c"]),
        (repeat, ["t: 1 stored more than once: a"]),
        (reorder, ["t: 1 stored out of order: d behind a at (0, 2)"]),
        (show_aborted, ["t: 1 aborted, and shown: aborted"]),
        (show_aborted_to_the_group, ["t: 1 read by the group, and not stored so: aborted at (0, 1)"]),
        (change_for_the_group, ["t: 1 read by the group, and not stored so: a at (1, 0)"]),
        (invent, ["t: 1 stored, and never sent: c"]),
        (skip, ["t: 1 acknowledged, and not read by the group: (1, 0)"]),
        (read_again, ["t: 1 read twice without a rebalance: (1, 1)"]),
        (read_backwards, ["t: 1 read out of order: (0, 0)"]),
        (forget_the_commit, [f"{COMMITTED}: partition 0 at 0, read up to 3"]),
        (commit_more, [f"{COMMITTED}: partition 1 at 4, read up to 2"]),
        (commit_less, [f"{COMMITTED}: partition 1 at 1, read up to 2"]),
    ],
)
def test_a_problem_is_named(damage: Callable[[TopicHistory], None], found: list[str]) -> None:
    history = clean()
    damage(history)
    assert problems(history) == found


def test_a_commit_may_pass_control_records() -> None:
    history = clean()
    history.committed[1] = 4
    assert problems(history) == []


def test_a_record_may_be_read_again_after_a_rebalance() -> None:
    history = clean()
    read_again(history)
    history.rebalances = 1
    assert problems(history) == []


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (forget_the_commit, f"{COMMITTED}: partition 0 at 0, read up to 3"),
        (commit_more, f"{COMMITTED}: partition 1 at 4, read up to 2"),
        (commit_less, f"{COMMITTED}: partition 1 at 1, read up to 2"),
    ],
)
def test_a_rebalance_excuses_no_wrong_commit(damage: Callable[[TopicHistory], None], found: str) -> None:
    history = clean()
    read_again(history)
    damage(history)
    history.rebalances = 1
    assert problems(history) == [found]


def test_a_group_that_begins_again_after_a_rebalance_has_lost_its_offsets() -> None:
    history = clean()
    late = Read(1.5 + AGAIN_SECONDS_MAX, (0, 0), "a")
    history.reads[1] = [*history.reads[1], late]
    history.rebalances = 1
    assert problems(history) == ["t: 1 read again after more than 60 s: (0, 0)"]


def test_the_table_marks_a_pause_that_is_too_long() -> None:
    row = Pause(scenario="s", records=9, ack_s=3.5, transaction_s=1.0, rebalances=0, seconds=20.0, limit_s=3)
    header, line, note = Pauses([row], ["a note"]).lines()
    assert line.endswith("TOO LONG")
    assert header.index("longest ack") + len("longest ack") == line.index("3.5 s") + len("3.5 s")
    assert note == "a note"
