"""Every waiting request of a classic group is answered once."""

from coordinator.commands.group_values import ClassicMember
from coordinator.groups.classic_answers import ClassicAnswers
from coordinator.groups.classic_members import LiveMember, Members
from coordinator.groups.classic_messages import JoinAnswer, SyncAnswer, Ticket
from protocol.errors import ErrorCode


def member(*, join: Ticket | None = None, sync: Ticket | None = None) -> LiveMember:
    value = ClassicMember(
        member_id="a",
        group_instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(),
        assignment=b"",
    )
    live = Members([value], "a", 0.0).by_id["a"]
    live.join_ticket, live.sync_ticket = join, sync
    return live


def test_a_waiting_join_is_answered_once() -> None:
    answers, waiting = ClassicAnswers(), member(join=Ticket(7))
    answers.end_join(waiting, ErrorCode.unknown_member_id, "")
    answers.end_join(waiting, ErrorCode.fenced_instance_id, "")
    assert answers.take().answers == [(7, JoinAnswer(error_code=ErrorCode.unknown_member_id, member_id=""))]


def test_a_waiting_sync_is_answered_once() -> None:
    answers, waiting = ClassicAnswers(), member(sync=Ticket(7))
    assert answers.end_sync(waiting, ErrorCode.rebalance_in_progress)
    assert not answers.end_sync(waiting, ErrorCode.rebalance_in_progress)
    assert answers.take().answers == [(7, SyncAnswer(error_code=ErrorCode.rebalance_in_progress))]


def test_work_is_taken_once() -> None:
    answers = ClassicAnswers()
    answers.log("rebalances")
    assert answers.take().log_messages == ["rebalances"]
    assert answers.take().log_messages == []
