"""Creates a cluster's first users, once. Whichever agent proposes them first, apply takes one proposal only."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from agent.config.bootstrap_users import BootstrapUser
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.security.audit.audit_events import AuditedResource, AuditEvent, AuditSource, ChangeEvent
from agent.security.credential_seal import CredentialSeal
from coordinator.commands.commands import Done, Rejected
from coordinator.commands.rules import RULES_SECURITY
from coordinator.commands.security import AclRow, BootstrapUsers, ScramRow
from protocol.auth.decoy_credentials import KAFKA_ALPHABET, KAFKA_SALT_BYTES
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.limits import FIRST_USERS_POLL_SECONDS

log = logging.getLogger(__name__)

ITERATIONS: Final = 4_096
"""The iterations of Kafka's tools."""
REMEDY: Final = (
    "none is needed at a later start; change users with penstock users or kafka-configs.sh. "
    'If no administrator can log in: docs/operations/security.md, "Locked out"'
)
API: Final = "--bootstrap-users"
MECHANISM: Final = "start"
"""The users come with the start of the agent, without a login."""


def new_credential(password: str, mechanism: ScramMechanism, ids: Ids) -> ScramCredential:
    """A credential with a new salt, in the form of Kafka's tools. Takes 2 to 3 ms."""
    drawn = ids.new_uuid() + ids.new_uuid()
    salt = bytes(KAFKA_ALPHABET[byte % len(KAFKA_ALPHABET)] for byte in drawn[:KAFKA_SALT_BYTES])
    salted = salt_password(password, salt=salt, iterations=ITERATIONS, mechanism=mechanism)
    return credential_of(salted, salt=salt, iterations=ITERATIONS, mechanism=mechanism)


async def create_first_users(
    users: Sequence[BootstrapUser],
    ledger: LedgerClient,
    ids: Ids,
    clock: Clock,
    seal: CredentialSeal,
    *,
    record: Callable[[AuditEvent], None] = lambda _: None,
) -> bool:
    """Propose the users and their ACLs; whether they were created. False where the cluster has, or had, any.

    `record` takes events of the audit log: one for each user that was created.
    Where an older agent is alive, this waits for its end: it cannot read users. Raises the errors of
    `LedgerClient.propose`.
    """
    while ledger.state.rules_version < RULES_SECURITY:
        await clock.sleep(FIRST_USERS_POLL_SECONDS)
    rows = await asyncio.to_thread(lambda: tuple(_row(user, ids, seal) for user in users))
    acls = tuple(AclRow.of(acl) for user in users for acl in user.acls)
    outcome = await ledger.propose(BootstrapUsers(credentials=rows, acls=acls))
    names = [user.name for user in users]
    match outcome:
        case Done():
            log.info("created the first users of the cluster", extra={"users": names})
            for user in users:
                record(_event(user))
            return True
        case Rejected():
            extra = {"users": names, "reason": outcome.reason, "remedy": REMEDY}
            log.info("the cluster is set up already, so --bootstrap-users changes nothing", extra=extra)
            return False
        case _:
            raise AssertionError(f"BootstrapUsers has the outcome {outcome}")


def _event(user: BootstrapUser) -> ChangeEvent:
    return ChangeEvent(
        source=AuditSource(mechanism=MECHANISM),
        api=API,
        resource=AuditedResource(kind=ResourceType.USER, name=user.name),
        operation=Operation.ALTER,
        change=f"created as a first user: {user.mechanism.name.replace('_', '-')} credential, {len(user.acls)} ACLs",
    )


def _row(user: BootstrapUser, ids: Ids, seal: CredentialSeal) -> ScramRow:
    credential_id = (user.name, user.mechanism)
    return ScramRow.of(credential_id, seal.seal(credential_id, new_credential(user.password, user.mechanism, ids), ids))
