"""How large what a coordinator decides of a consumer group may be: it has to fit into one ledger entry.

Rule: pure; judged by what is really written, the bytes of the entry once it is compressed. What is so small that it
fits in any case is not encoded to see that.
"""

from coordinator.codec.codec import Unwritable, encode
from coordinator.commands.commands import Proposal
from coordinator.commands.consumer_group_values import AssignmentRow, ConsumerGroupChange, ConsumerMember, Partitions
from coordinator.commands.group import WriteClassicGroup, WriteConsumerGroup
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.commands.rules import RULES_NEWEST
from protocol.limits import CONSUMER_GROUP_CHANGE_BYTES_MAX
from protocol.types import SessionId

TEXT_HEAD_BYTES = 5
"""MessagePack's, at most, of texts, bytes, arrays and numbers."""
TOPIC_BYTES = 32
"""The bytes of a topic without its partitions: its id, and heads of arrays."""
MEMBER_BYTES = 128
"""The bytes of a member's numbers and heads of arrays."""


def fits(change: ConsumerGroupChange, bytes_max: int = CONSUMER_GROUP_CHANGE_BYTES_MAX) -> bool:
    """Whether the entry of a change has `bytes_max` bytes at most; its group's id not counted."""
    if _bytes_at_most(change) <= bytes_max:
        return True
    return _is_written(WriteConsumerGroup(group_id="", claim_epoch=1, version=1, change=change), bytes_max)


def classic_fits(group: ClassicGroup) -> bool:
    """The same of what a consumer group becomes where only members of the classic protocol stay."""
    bytes_at_most = MEMBER_BYTES + sum(map(_classic_member_bytes, group.members))
    if bytes_at_most <= CONSUMER_GROUP_CHANGE_BYTES_MAX:
        return True
    command = WriteClassicGroup(group_id="", claim_epoch=1, version=1, group=group)
    return _is_written(command, CONSUMER_GROUP_CHANGE_BYTES_MAX)


def _is_written(command: WriteConsumerGroup | WriteClassicGroup, bytes_max: int) -> bool:
    try:
        return len(encode(Proposal(time_ms=None, command=command), RULES_NEWEST, SessionId(0), 0)) <= bytes_max
    except Unwritable:
        # It would unpack to more than anybody reads.
        return False


def _classic_member_bytes(member: ClassicMember) -> int:
    texts = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
    return (
        MEMBER_BYTES
        + len(member.assignment)
        + sum(map(_text_bytes, texts))
        + sum(2 * TEXT_HEAD_BYTES + _text_bytes(name) + len(metadata) for name, metadata in member.protocols)
    )


def _bytes_at_most(change: ConsumerGroupChange) -> int:
    texts = [*change.removed, *change.regexes_removed]
    texts += [member_id for member_id, _ in change.targets]
    texts += [row.member_id for row in change.assignments]
    for regex, names in change.regexes:
        texts += [regex, *names]
    return (
        MEMBER_BYTES
        + sum(map(_text_bytes, texts))
        + sum(map(_member_bytes, change.members))
        + sum(map(_assignment_bytes, change.assignments))
        + sum(_partitions_bytes(target) for _, target in change.targets)
        + TEXT_HEAD_BYTES * (len(change.regexes) + len(change.targets))
    )


def _text_bytes(text: str) -> int:
    return TEXT_HEAD_BYTES + (len(text) if text.isascii() else len(text.encode()))


def _member_bytes(member: ConsumerMember) -> int:
    optional = (member.instance_id, member.rack_id, member.server_assignor)
    texts = [member.member_id, member.client_id, member.client_host, member.subscribed_regex, *member.subscribed_names]
    protocols = () if member.classic is None else member.classic.protocols
    return (
        MEMBER_BYTES
        + sum(map(_text_bytes, texts))
        + sum(_text_bytes(text) for text in optional if text is not None)
        + sum(2 * TEXT_HEAD_BYTES + _text_bytes(name) + len(metadata) for name, metadata in protocols)
    )


def _assignment_bytes(assignment: AssignmentRow) -> int:
    rows = [rows for _, rows in (*assignment.assigned, *assignment.revoking)]
    return MEMBER_BYTES + sum(TOPIC_BYTES + (2 * TEXT_HEAD_BYTES + 1) * len(partitions) for partitions in rows)


def _partitions_bytes(partitions: Partitions) -> int:
    return sum(TOPIC_BYTES + TEXT_HEAD_BYTES * len(indexes) for _, indexes in partitions)
