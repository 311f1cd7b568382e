"""Which answers cost a member of a group its place, and whether this agent may give them.

Rule: they are told behind a barrier, where the claim is still the newest (safety rule S4): a coordinator that is cut
off does not know who has joined elsewhere since, and would make them give up what they have. Barriers are shared, so
many refusals at once cost few; other answers cost none.
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
"""The errors after which a member stays one: it goes on, joins again as itself, or asks again."""


def is_fatal_to_member(error_code: ErrorCode) -> bool:
    """Whether a member that is told this gives up its partitions, its membership, or itself.

    UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION and FENCED_MEMBER_EPOCH make it join as somebody new; the others are the end
    of the consumer, or of what it commits. Source: AbstractCoordinator and ConsumerCoordinator (their response
    handlers), AbstractHeartbeatRequestManager.onErrorResponse, TransactionManager.TxnOffsetCommitHandler (Kafka 4.3).
    """
    return error_code not in _NOT_FATAL


async def check_confirmed(ledger: GroupLedger, group_id: str, claim_epoch: int) -> None:
    """Return once the claim is confirmed. Raises `NotCoordinator` where it is over, or the ledger does not answer."""
    error_code = await ledger.confirmed(group_id, claim_epoch)
    if error_code is not ErrorCode.none:
        raise NotCoordinator(error_code)
