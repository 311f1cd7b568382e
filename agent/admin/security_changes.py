"""Proposes changes of ACLs and SCRAM credentials to the ledger, in entries of bounded size.

In: ACLs, filters and credentials that were checked. Out: what the entries did, as their outcomes say.
Rule: nothing is proposed before the rules in force have the commands. Rows of one request stand in as few entries as
their number and bytes allow. An entry is carried out as a whole, or not at all.
Source: org.apache.kafka.controller.QuorumController (UNSUPPORTED_VERSION below the metadata.version) (Kafka 4.3).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from agent.admin.topics import TopicError, before
from agent.ledger.entry_batches import bounded_batches
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.commands.commands import Command, Outcome, Rejected
from coordinator.commands.rules import RULES_SECURITY
from coordinator.commands.security import (
    AclsCreated,
    AclsDeleted,
    AlterScram,
    CreateAcls,
    CredentialId,
    DeleteAcls,
    ScramAltered,
    ScramRow,
)
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.security.acls import Acl, AclFilter
from protocol.errors import ErrorCode
from protocol.limits import SECURITY_ENTRY_BYTES_MAX, SECURITY_ROWS_PER_ENTRY_MAX

Row = TypeVar("Row")
ROW_BYTES = 40
"""The bytes of an ACL beside its names, and more."""


class SecurityChanges:
    """Changes of one agent's clients. All methods raise `TopicError` for a change that was rejected or timed out."""

    def __init__(self, ledger: LedgerClient, clock: Clock, end_s: float) -> None:
        """`end_s`: the monotonic time at which the request times out."""
        self._ledger = ledger
        self._clock = clock
        self._end_s = end_s

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Creates ACLs of one entry: `entry_batches`. No ACL at all confirms those that a recovery restored."""
        outcome = await self._carry_out(CreateAcls.of(acls))
        assert isinstance(outcome, AclsCreated)

    async def delete_acls(self, acl_filter: AclFilter) -> Sequence[Acl]:
        """Deletes what a filter fits, and returns it."""
        outcome = await self._carry_out(DeleteAcls.of(acl_filter))
        assert isinstance(outcome, AclsDeleted)
        return outcome.acls

    async def alter_scram(
        self, deletions: Sequence[CredentialId], upsertions: Sequence[ScramRow]
    ) -> Sequence[CredentialId]:
        """Alters credentials of one entry, and returns those that were to be deleted and were not there."""
        outcome = await self._carry_out(AlterScram(deletions=tuple(deletions), upsertions=tuple(upsertions)))
        assert isinstance(outcome, ScramAltered)
        return outcome.missing

    async def _carry_out(self, command: Command) -> Outcome:
        if self._ledger.state.rules_version < RULES_SECURITY:
            raise TopicError(
                ErrorCode.unsupported_version,
                "The rules in force do not have ACLs and SCRAM credentials: an agent of an older version is running.",
            )
        try:
            outcome = await before(self._end_s, self._clock, self._ledger.propose(command))
        except (LedgerUnavailable, OutcomeUnknown) as error:
            raise TopicError(ErrorCode.request_timed_out, str(error)) from error
        if isinstance(outcome, Rejected):
            raise TopicError(outcome.error_code, outcome.reason)
        return outcome


def row_bytes(*names: str) -> int:
    """The bytes that an ACL or a credential with these names takes in an entry, or more."""
    return ROW_BYTES + sum(len(name.encode()) for name in names)


def entry_batches(rows: Iterable[tuple[Row, int]]) -> Iterator[list[Row]]:
    """Groups rows, each with its bytes, into entries; their order is kept."""
    return bounded_batches(rows, weight_max=SECURITY_ENTRY_BYTES_MAX, rows_count_max=SECURITY_ROWS_PER_ENTRY_MAX)
