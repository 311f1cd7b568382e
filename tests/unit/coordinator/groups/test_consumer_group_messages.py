"""Heartbeats of consumer groups that say nothing that a coordinator could act upon (KIP-848)."""

from dataclasses import replace

import pytest

from coordinator.groups.consumer_group_messages import (
    NOT_SAID,
    ConsumerHeartbeat,
    GroupRejection,
    Problems,
    check_heartbeat,
)
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_MEMBER_BYTES_MAX
from tests.support.groups.consumer_groups import beat, owned

ASSIGNORS = ("uniform", "range")


class TestRequestsThatAreNonsense:
    """Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid."""

    @pytest.mark.parametrize(
        "request_",
        [
            beat(""),
            beat("", 3),
            beat("", -1),
            beat("a", -2),
            beat("a", -3),
            beat("a", instance=""),
            beat("a", rack=""),
            beat("a", rebalance_timeout_ms=NOT_SAID),
            beat("a", said=owned(t=[0])),
            replace(beat("a"), owned=None),
            replace(beat("a"), names=None),
            beat("a", names=["t" * 100] * (CONSUMER_GROUP_MEMBER_BYTES_MAX // 100 + 1)),
        ],
    )
    def test_they_are_invalid(self, request_: ConsumerHeartbeat) -> None:
        with pytest.raises(GroupRejection) as caught:
            check_heartbeat(request_, ASSIGNORS, is_id_required=True)
        assert caught.value.error_code is ErrorCode.invalid_request

    def test_an_assignor_that_is_not_there_is_told(self) -> None:
        with pytest.raises(GroupRejection, match="uniform, range") as caught:
            check_heartbeat(beat("a", assignor="nosuch"), ASSIGNORS, is_id_required=True)
        assert caught.value.error_code is ErrorCode.unsupported_assignor

    @pytest.mark.parametrize(
        "request_",
        [
            beat("a"),
            beat("a", names=[]),
            beat("a", regex=""),
            beat("a", 7),
            beat("a", -1),
            beat("a", -2, instance="i"),
            beat("a", assignor="range"),
        ],
    )
    def test_others_are_let_through(self, request_: ConsumerHeartbeat) -> None:
        check_heartbeat(request_, ASSIGNORS, is_id_required=True)

    def test_before_version_1_the_coordinator_gives_a_joining_member_its_id(self) -> None:
        check_heartbeat(beat(""), ASSIGNORS, is_id_required=False)
        with pytest.raises(GroupRejection):
            check_heartbeat(beat("", 3), ASSIGNORS, is_id_required=False)


def test_a_problem_is_told_once_with_its_first_detail_until_it_is_over() -> None:
    problems = Problems()
    problems.note("too large", "5 bytes")
    problems.note("too large", "6 bytes")
    problems.note("too many")
    assert problems.take() == ["too large: 5 bytes", "too many"]
    problems.note("too large", is_so=False)
    problems.note("too large", "7 bytes")
    assert problems.take() == ["too large: 7 bytes"]
