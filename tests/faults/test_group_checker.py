"""The judge of groups of consumers, on histories of a few lines: what it must find, and what it must let pass."""

import pytest

from tests.faults.group_checker import check_group, explains, processed_again
from tests.faults.group_history import Commit, GroupHistory, add_lines

END = 30


def history_of(*lines: str, has_generations: bool = True) -> GroupHistory:
    """Lines as consumers tell them, of a group `g` and its partition 0; each comes 10 us after the one before."""
    history = GroupHistory(has_generations=has_generations)
    stamped = []
    for row, line in enumerate(lines):
        consumer, kind, rest = (line + " ").split(" ", 2)
        stamped.append(f"g-{consumer} {kind} {10 * row} {rest}".strip())
    add_lines({"g": history}, stamped)
    return history


def kinds(*lines: str, end: int = END, has_generations: bool = True) -> list[str]:
    return [anomaly.kind for anomaly in check_group(history_of(*lines, has_generations=has_generations), [end])]


BEGUN = ("a-1 G 1", "a-1 A 1 0", "a-1 R 0 0 10", "a-1 C 1 0 10", "a-1 K 1 0", "a-1 R 0 10 20")
UNANSWERED = (*BEGUN, "a-1 C 2 0 20")
MOVED = ("b-2 G 2", "b-2 A 2 0")


def test_a_partition_that_moves_is_read_on_from_what_was_acknowledged() -> None:
    lines = (*BEGUN, "a-1 V 1 0", *MOVED, "b-2 R 0 10 30")
    assert kinds(*lines) == []
    assert processed_again(history_of(*lines)) == 10


@pytest.mark.parametrize("first", [10, 20])
def test_a_commit_without_an_answer_may_have_happened_or_not(first: int) -> None:
    assert kinds(*UNANSWERED, "a-1 F 2 0 TIMED_OUT", "a-1 V 1 0", *MOVED, f"b-2 R 0 {first} 30") == []


def test_what_was_acknowledged_is_not_processed_again() -> None:
    assert kinds(*UNANSWERED, "a-1 K 2 0", "a-1 V 1 0", *MOVED, "b-2 R 0 10 30") == ["begun elsewhere"]


def test_a_new_owner_begins_where_somebody_committed() -> None:
    assert kinds(*UNANSWERED, "a-1 K 2 0", "a-1 V 1 0", *MOVED, "b-2 R 0 15 30") == ["begun elsewhere"]


def test_a_group_that_lost_its_offsets_begins_at_0_again() -> None:
    assert kinds(*BEGUN, "a-1 V 1 0", *MOVED, "b-2 R 0 0 30") == ["begun elsewhere"]


def test_records_that_nobody_processed_are_skipped() -> None:
    assert kinds(*UNANSWERED, "a-1 V 1 0", *MOVED, "b-2 R 0 25 30") == ["skipped", "begun elsewhere"]
    assert kinds(*BEGUN) == ["skipped"]
    assert kinds() == ["skipped"]


def test_a_member_reads_on_where_it_was() -> None:
    assert kinds(*BEGUN, "a-1 R 0 10 30") == ["torn"]


def test_a_member_processes_only_what_it_holds() -> None:
    assert kinds(*BEGUN, "a-1 L 1 0", "a-1 R 0 20 30", end=20) == ["wrong"]


def test_a_commit_of_a_member_whose_partition_moved_on_must_be_refused() -> None:
    zombie = (*BEGUN, *MOVED, "b-2 R 0 10 30", "a-1 C 2 0 20")
    assert kinds(*zombie, "a-1 F 2 0 ILLEGAL_GENERATION") == []
    assert kinds(*zombie, "a-1 K 2 0") == ["not fenced"]


def test_a_commit_that_was_sent_before_the_partition_moved_on_may_be_answered_later() -> None:
    assert kinds(*UNANSWERED, *MOVED, "b-2 R 0 20 30", "a-1 K 2 0") == []


def test_in_one_generation_a_partition_is_given_to_one_member() -> None:
    lines = (*BEGUN, "b-2 G 1", "b-2 A 1 0", "b-2 R 0 10 30")
    assert kinds(*lines) == ["given twice"]
    assert kinds(*lines, has_generations=False) == []


def test_generations_never_go_back() -> None:
    assert kinds(*BEGUN, "a-1 G 3", "a-1 G 2", end=20) == ["generation went back"]
    assert kinds(*BEGUN, "a-1 G 3", "b-2 G 2", end=20) == []


def test_a_wrong_value_is_reported() -> None:
    assert kinds(*BEGUN, "a-1 X wrong-value-at-0-7", end=20) == ["wrong"]


def commit(offset: int, sent_us: int, acknowledged_us: int | None) -> Commit:
    return Commit(
        consumer="g-a-1", partition=0, offset=offset, sent_us=sent_us, stint=None, acknowledged_us=acknowledged_us
    )


def test_of_two_commits_at_once_either_may_be_the_last() -> None:
    commits = [commit(10, 0, 30), commit(20, 20, 40)]
    assert explains(10, commits, began_us=50, ended_us=60)
    assert explains(20, commits, began_us=50, ended_us=60)
    assert not explains(0, commits, began_us=50, ended_us=60)


def test_a_commit_counts_from_when_it_was_sent() -> None:
    commits = [commit(10, 70, 80)]
    assert not explains(10, commits, began_us=50, ended_us=60)
    assert explains(10, commits, began_us=50, ended_us=75)
    assert explains(0, commits, began_us=50, ended_us=75)


def test_a_commit_without_an_answer_may_take_effect_after_a_later_one() -> None:
    commits = [commit(10, 0, None), commit(20, 20, 30)]
    assert explains(10, commits, began_us=50, ended_us=60)
    assert explains(20, commits, began_us=50, ended_us=60)


def test_what_was_reached_and_who_is_served_follows_from_acknowledgements() -> None:
    history = history_of(*UNANSWERED)
    assert (history.reached, history.served_us) == ({0: 10}, {"g-a-1": 30})
    history = history_of(*UNANSWERED, "a-1 K 2 0", *MOVED)
    assert (history.reached, history.served_us) == ({0: 20}, {"g-a-1": 60})
    assert history.holders() == {0: {"g-a-1", "g-b-2"}}


def test_who_leaves_holds_nothing() -> None:
    assert kinds(*BEGUN, "a-1 D", *MOVED, "b-2 R 0 10 30") == []
    assert kinds(*BEGUN, "a-1 D", "a-1 R 0 20 30") == ["wrong", "skipped"]
