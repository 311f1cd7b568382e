"""What one request means by a name and by an id is counted together."""

import uuid

from agent.handlers.delete_topics import merge_mentions

ID = uuid.UUID(int=7)
OTHER = uuid.UUID(int=8)


def test_a_topic_meant_by_name_and_by_id_is_meant_twice() -> None:
    assert merge_mentions([("t", None), (None, ID)], {ID: "t"}) == {("t", ID): 2}


def test_different_topics_stay_apart() -> None:
    wanted = [("t", None), (None, OTHER), (None, OTHER), ("u", None)]
    assert merge_mentions(wanted, {OTHER: "o"}) == {("t", None): 1, (None, OTHER): 2, ("u", None): 1}


def test_what_gives_both_or_nothing_is_left_for_the_answer_to_refuse() -> None:
    wanted: list[tuple[str | None, uuid.UUID | None]] = [("t", ID), (None, None)]
    assert merge_mentions(wanted, {}) == {("t", ID): 1, (None, None): 1}
