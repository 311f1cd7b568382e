"""ACLs and SCRAM credentials as the ledger's entries make them. Called by `coordinator.apply.apply`.

Rule: the index of ACLs follows each ACL that comes or goes, in a time that does not depend on how many there are. A
command beyond a limit changes nothing: changing a value of `protocol.limits` here is a change of the rules (S3). Keys
of credentials are compared with nothing.
Source: org.apache.kafka.controller.AclControlManager and ScramControlManager (Kafka 4.3). Differs from Kafka: the
limits of how many ACLs and credentials there are; a user's last credential takes the user's delegation tokens with it.
"""

from collections.abc import Sequence
from typing import assert_never

from coordinator.apply.delegation_tokens import remove_tokens_of_users
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.commands.security import (
    AclRow,
    AclsCreated,
    AclsDeleted,
    AlterScram,
    BootstrapUsers,
    CreateAcls,
    DeleteAcls,
    ScramAltered,
    ScramRow,
    SecurityCommand,
)
from coordinator.security.acls import Acl
from coordinator.state.state import ClusterState
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import ACL_DELETIONS_PER_ENTRY_MAX, ACLS_MAX, SCRAM_CREDENTIALS_MAX


def apply_security_command(state: ClusterState, command: SecurityCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about ACLs and credentials."""
    match command:
        case CreateAcls():
            return create_acls(state, command.rows)
        case DeleteAcls():
            return delete_acls(state, command)
        case AlterScram():
            return alter_scram(state, command)
        case BootstrapUsers():
            return bootstrap_users(state, command)
        case _:
            assert_never(command)


def create_acls(state: ClusterState, rows: Sequence[AclRow]) -> AclsCreated | Rejected:
    """Adds the ACLs that are not there; all, or none where there would be more than `ACLS_MAX`."""
    acls = dict.fromkeys(row.acl() for row in rows)
    added = [acl for acl in acls if acl not in state.acls]
    if len(state.acls) + len(added) > ACLS_MAX:
        return Rejected(
            error_code=ErrorCode.policy_violation,
            reason=f"There would be {len(state.acls) + len(added)} ACLs, {ACLS_MAX} is the most.",
        )
    for acl in added:
        state.acls[acl] = None
        state.acl_index.add(acl)
    _note_acls(state)
    return AclsCreated(created_count=len(added))


def delete_acls(state: ClusterState, command: DeleteAcls) -> AclsDeleted | Rejected:
    """Removes the ACLs that the filter fits; all, or none where it fits more than `ACL_DELETIONS_PER_ENTRY_MAX`."""
    fitting = sorted(state.acl_index.matching(command.acl_filter()), key=_order)
    if len(fitting) > ACL_DELETIONS_PER_ENTRY_MAX:
        return Rejected(
            error_code=ErrorCode.invalid_request,
            reason=f"Cannot remove more than {ACL_DELETIONS_PER_ENTRY_MAX} acls in a single delete operation.",
        )
    for acl in fitting:
        del state.acls[acl]
        state.acl_index.remove(acl)
    _note_acls(state)
    return AclsDeleted(acls=tuple(fitting))


def alter_scram(state: ClusterState, command: AlterScram) -> ScramAltered | Rejected:
    """Deletes and sets credentials. Nothing changes where there would be more than `SCRAM_CREDENTIALS_MAX`."""
    missing = tuple(each for each in command.deletions if each not in state.scram)
    deleted = {each for each in command.deletions if each in state.scram}
    added = {row.credential_id for row in command.upsertions if row.credential_id not in state.scram}
    kept = {row.credential_id for row in command.upsertions if row.credential_id in deleted}
    count = len(state.scram) - len(deleted) + len(added) + len(kept)
    if count > SCRAM_CREDENTIALS_MAX:
        return Rejected(
            error_code=ErrorCode.policy_violation,
            reason=f"There would be {count} SCRAM credentials, {SCRAM_CREDENTIALS_MAX} is the most.",
        )
    for credential_id in command.deletions:
        state.scram.pop(credential_id, None)
    _set_credentials(state, command.upsertions)
    remove_tokens_of_users(state, {user for user, _ in deleted if not _has_credential(state, user)})
    return ScramAltered(missing=missing)


def bootstrap_users(state: ClusterState, command: BootstrapUsers) -> Done | Rejected:
    """Creates the first users and ACLs; rejected where there ever were any."""
    if state.is_security_set_up:
        return Rejected(
            error_code=ErrorCode.duplicate_resource, reason="The cluster has, or had, users or ACLs already."
        )
    if len(command.credentials) > SCRAM_CREDENTIALS_MAX:
        return Rejected(
            error_code=ErrorCode.policy_violation,
            reason=f"{len(command.credentials)} SCRAM credentials, {SCRAM_CREDENTIALS_MAX} is the most.",
        )
    created = create_acls(state, command.acls)
    if isinstance(created, Rejected):
        return created
    _set_credentials(state, command.credentials)
    return Done()


def _set_credentials(state: ClusterState, rows: Sequence[ScramRow]) -> None:
    for row in rows:
        state.scram[row.credential_id] = row.credential()
    state.scram_version = max(state.scram_version + 1, state.position)
    state.is_security_set_up |= bool(state.scram)


def _has_credential(state: ClusterState, user: str) -> bool:
    return any((user, mechanism) in state.scram for mechanism in ScramMechanism)


def _note_acls(state: ClusterState) -> None:
    """A caller that may alter ACLs has looked at them."""
    state.is_acls_confirmed = True
    state.acls_version = max(state.acls_version + 1, state.position)
    state.is_security_set_up |= bool(state.acls)


def _order(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    return acl.resource_type, acl.name, acl.pattern, str(acl.principal), acl.host, acl.operation, acl.permission
