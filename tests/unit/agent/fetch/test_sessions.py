"""Fetch sessions by the rules of KIP-227: epochs count, what is not repeated stays, what is refused changes nothing."""

from collections.abc import Sequence

from agent.fetch.sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    EPOCH_MAX,
    EVICTABLE_AFTER_S,
    FetchContext,
    FetchSessions,
    PartitionName,
    RequestedPartition,
)
from protocol.errors import ErrorCode


def requested(partition: int, offset: int = 0, *, topic: str = "t") -> RequestedPartition:
    return RequestedPartition(
        topic=topic,
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=1_000,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    *partitions: RequestedPartition,
    forgotten: Sequence[PartitionName] = (),
    new: int = 5,
    uses_topic_ids: bool = False,
    now_s: float = 0.0,
) -> FetchContext:
    return sessions.begin(
        session_id=session_id,
        epoch=epoch,
        requested=partitions,
        forgotten=forgotten,
        uses_topic_ids=uses_topic_ids,
        session_id_new=new,
        now_s=now_s,
    )


def names(context: FetchContext) -> list[int]:
    return [partition.partition for partition in context.partitions]


def test_a_full_fetch_opens_a_session_and_names_every_partition() -> None:
    sessions = FetchSessions()
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1))
    assert (context.error_code, context.is_full, names(context)) == (ErrorCode.none, True, [0, 1])
    assert context.session is not None
    assert context.session.session_id == 5
    assert not sessions.is_free(5)


def test_the_next_epoch_goes_on_with_what_was_asked_before() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1))
    context = begin(sessions, 5, 1)
    assert (context.error_code, context.is_full, names(context)) == (ErrorCode.none, False, [0, 1])
    context = begin(sessions, 5, 2, requested(1, offset=9), requested(2), forgotten=[("t", 0)])
    assert [(p.partition, p.fetch_offset) for p in context.partitions] == [(1, 9), (2, 0)]


def test_what_was_told_is_kept_when_a_partition_is_asked_for_again() -> None:
    sessions = FetchSessions()
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0))
    context.partitions[0].high_watermark_reported = 7
    (again,) = begin(sessions, 5, 1, requested(0, offset=3)).partitions
    assert (again.high_watermark_reported, again.fetch_offset) == (7, 3)


def test_an_unknown_session_and_a_wrong_epoch_are_refused_and_change_nothing() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0))
    assert begin(sessions, 6, 1).error_code is ErrorCode.fetch_session_id_not_found
    for epoch in (2, 7):
        context = begin(sessions, 5, epoch, requested(1), forgotten=[("t", 0)])
        assert (context.error_code, list(context.partitions)) == (ErrorCode.invalid_fetch_session_epoch, [])
    assert names(begin(sessions, 5, 1)) == [0]


def test_the_epoch_after_the_greatest_is_one() -> None:
    sessions = FetchSessions()
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0))
    assert context.session is not None
    context.session.epoch = EPOCH_MAX
    assert begin(sessions, 5, EPOCH_MAX).error_code is ErrorCode.none
    assert begin(sessions, 5, 1).error_code is ErrorCode.none


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0))
    assert begin(sessions, 5, 1, uses_topic_ids=True).error_code is ErrorCode.fetch_session_topic_id_error


def test_the_final_epoch_ends_a_session_and_still_answers() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0))
    context = begin(sessions, 5, EPOCH_FINAL, requested(3))
    assert (context.error_code, context.session, names(context)) == (ErrorCode.none, None, [3])
    assert sessions.is_free(5)


def test_a_new_session_replaces_the_one_that_it_names() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0))
    begin(sessions, 5, EPOCH_INITIAL, requested(1), new=6)
    assert (sessions.is_free(5), sessions.is_free(6)) == (True, False)


def test_a_session_without_partitions_is_over() -> None:
    sessions = FetchSessions()
    begin(sessions, 0, EPOCH_INITIAL, requested(0))
    assert names(begin(sessions, 5, 1, forgotten=[("t", 0)])) == []
    assert sessions.is_free(5)


def test_a_full_house_keeps_sessions_that_are_in_use_and_answers_without_one() -> None:
    sessions = FetchSessions(sessions_max=2)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=1)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=2)
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0), new=3, now_s=EVICTABLE_AFTER_S - 1)
    assert (context.error_code, context.session, names(context)) == (ErrorCode.none, None, [0])


def test_a_full_house_drops_the_session_that_was_not_used_for_long() -> None:
    sessions = FetchSessions(sessions_max=2)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=1)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=2)
    begin(sessions, 1, 1, now_s=60.0)
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0), new=3, now_s=EVICTABLE_AFTER_S)
    assert context.session is not None
    assert [sessions.is_free(session) for session in (1, 2, 3)] == [False, True, False]


def test_a_fetch_of_more_partitions_than_a_session_holds_is_answered_without_one() -> None:
    sessions = FetchSessions(session_partitions_max=2)
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1), requested(2))
    assert (context.error_code, context.session, names(context)) == (ErrorCode.none, None, [0, 1, 2])
    assert sessions.is_free(5)


def test_a_session_that_grows_beyond_the_bound_is_over_and_everything_is_answered() -> None:
    sessions = FetchSessions(session_partitions_max=2)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1))
    context = begin(sessions, 5, 1, requested(2))
    assert (context.error_code, context.session, context.is_full) == (ErrorCode.none, None, True)
    assert names(context) == [0, 1, 2]
    assert sessions.is_free(5)


def test_all_sessions_together_hold_a_bounded_number_of_partitions() -> None:
    sessions = FetchSessions(partitions_max=3)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1), new=1)
    assert begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1), new=2).session is None
    assert begin(sessions, 0, EPOCH_INITIAL, requested(0), new=3).session is not None
    begin(sessions, 1, 1, forgotten=[("t", 0)])
    assert begin(sessions, 0, EPOCH_INITIAL, requested(0), new=4).session is not None
    assert begin(sessions, 4, 1, requested(1)).session is None
    begin(sessions, 3, EPOCH_FINAL)
    assert begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1), new=5, now_s=1.0).session is not None


def test_partitions_of_sessions_that_were_not_used_for_long_make_room() -> None:
    sessions = FetchSessions(partitions_max=2)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=1)
    begin(sessions, 0, EPOCH_INITIAL, requested(0), new=2)
    context = begin(sessions, 0, EPOCH_INITIAL, requested(0), requested(1), new=3, now_s=EVICTABLE_AFTER_S)
    assert context.session is not None
    assert [sessions.is_free(session) for session in (1, 2, 3)] == [True, True, False]
