"""The errors that are fatal to a group member, and the check before one of them is answered.

A coordinator that is cut off does not know which members have joined elsewhere since, and such an error would make them
give up their partitions. So it is answered only behind a barrier that finds this agent's claim to be the newest (safety
rule S4). Barriers are shared, so many errors at once cost few requests to the ledger.
"""

from agent.groups.group_ledger import GroupLedger, NotCoordinator
from protocol.errors import ErrorCode

_NOT_FATAL = frozenset(
    {
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.member_id_required,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)
"""The errors after which a member stays in its group: it goes on, joins again under its id, or repeats the request."""


def is_fatal_to_member(error_code: ErrorCode) -> bool:
    """Whether a member that gets this error gives up its partitions or its membership, or ends.

    After UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION and FENCED_MEMBER_EPOCH it joins as a new member. The other errors end
    the consumer, or its commit. Source: AbstractCoordinator and ConsumerCoordinator (their response handlers),
    AbstractHeartbeatRequestManager.onErrorResponse, TransactionManager.TxnOffsetCommitHandler (Kafka 4.3).
    """
    return error_code not in _NOT_FATAL


async def check_confirmed(ledger: GroupLedger, group_id: str, claim_epoch: int) -> None:
    """Return once the claim is confirmed. Raises `NotCoordinator` where it is over, or the ledger does not answer."""
    error_code = await ledger.confirmed(group_id, claim_epoch)
    if error_code is not ErrorCode.none:
        raise NotCoordinator(error_code)
