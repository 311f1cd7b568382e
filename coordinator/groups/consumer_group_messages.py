"""Heartbeats of a consumer group (KIP-848) and their answers, and the check of malformed requests.

Rule: values only; pure. A request that cannot be met is a `GroupRejection`.
Source: org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData, GroupCoordinatorService, Kafka 4.3.
"""

from dataclasses import dataclass

from coordinator.commands.consumer_group_values import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    OwnedPartitions,
    Partitions,
)
from coordinator.groups.assignors import RANGE, UNIFORM
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_MEMBER_BYTES_MAX

NOT_SAID = -1


class GroupRejection(Exception):
    """The request cannot be met; the answer has the code and the message."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


def too_large(message: str) -> GroupRejection:
    """GROUP_MAX_SIZE_REACHED: of Kafka's errors the one that says that the group, not the request, is the matter.

    Clients give up on it and show the message. Kafka, whose coordinator cannot write too large a record either, answers
    UNKNOWN_SERVER_ERROR without one.
    """
    return GroupRejection(ErrorCode.group_max_size_reached, message)


class Problems:
    """Problems of a group that an operator has to know: each is logged once, until it is over."""

    def __init__(self) -> None:
        self._standing: set[str] = set()
        self._untold: list[str] = []

    def note(self, problem: str, detail: str = "", *, is_so: bool = True) -> None:
        """It is so, or not any more. The problem is one of a few texts; the detail, which varies, comes with it."""
        if not is_so:
            self._standing.discard(problem)
        elif problem not in self._standing:
            self._standing.add(problem)
            self._untold.append(f"{problem}: {detail}" if detail else problem)

    def take(self) -> list[str]:
        """The problems that were not logged yet."""
        untold, self._untold = self._untold, []
        return untold


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The configs of one group, by the names of its dynamic config or of the broker's."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: tuple[str, ...] = (UNIFORM, RANGE)
    """The first is taken where members name none."""
    regex_refresh_ms: int = 600_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request; None, or `NOT_SAID`, is what has not changed since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    names: tuple[str, ...] | None
    regex: str | None
    server_assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: OwnedPartitions | None
    """None where the member knows it already."""


def check_heartbeat(request: ConsumerHeartbeat, assignors: tuple[str, ...], *, is_id_required: bool) -> None:
    """Raise `GroupRejection` where the request is nonsense, whatever the group.

    `is_id_required`: the member makes its own id (version 1 on). Source: GroupCoordinatorService.
    """
    epoch = request.epoch
    if not request.member_id and (is_id_required or epoch != JOIN_EPOCH):
        raise _invalid("MemberId can't be empty")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty")
    if epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is none")
    if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null where MemberEpoch is -2")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == NOT_SAID:
            raise _invalid("RebalanceTimeoutMs must be provided in the first request")
        if request.owned != ():
            raise _invalid("TopicPartitions must be empty when (re-)joining")
        if request.names is None and request.regex is None:
            raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining")
    texts = (request.member_id, request.instance_id, request.rack_id, request.regex, *(request.names or ()))
    if sum(len(text.encode()) for text in texts if text is not None) > CONSUMER_GROUP_MEMBER_BYTES_MAX:
        raise _invalid(f"ids, rack and subscription of a member have more than {CONSUMER_GROUP_MEMBER_BYTES_MAX} bytes")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise GroupRejection(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor!r} is not supported; these are: {', '.join(assignors)}",
        )


def _invalid(message: str) -> GroupRejection:
    return GroupRejection(ErrorCode.invalid_request, message)


def updated_member(before: ConsumerMember | None, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member as the request says that it is now; what it does not say stays."""
    names = None if request.names is None else tuple(sorted(set(request.names)))
    if before is None:
        return ConsumerMember(
            member_id=request.member_id,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_names=names or (),
            subscribed_regex=request.regex or "",
            server_assignor=request.server_assignor,
        )
    is_timeout_said = request.rebalance_timeout_ms != NOT_SAID
    return ConsumerMember(
        member_id=request.member_id,
        instance_id=request.instance_id if request.instance_id is not None else before.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms if is_timeout_said else before.rebalance_timeout_ms,
        subscribed_names=before.subscribed_names if names is None else names,
        subscribed_regex=before.subscribed_regex if request.regex is None else request.regex,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
    )
