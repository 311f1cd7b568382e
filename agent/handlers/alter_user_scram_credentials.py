"""AlterUserScramCredentials: sets and deletes users' SCRAM credentials (KIP-554).

- Versions: 0.
- Behaviour: each user has one result. A user that is named more than once is DUPLICATE_RESOURCE and stays as it is. The
  keys are derived from the salted password here; that is worth the password, and enters no entry and no log.
- Differs from Kafka: there are at most 50,000 credentials, of users whose names have at most 1,024 characters; what is
  beyond is POLICY_VIOLATION. A salt of more than 256 bytes, and an empty one, are UNACCEPTABLE_CREDENTIAL.
- Source: org.apache.kafka.controller.ScramControlManager.alterCredentials (Kafka 4.3).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from agent.admin.security_changes import SecurityChanges, entry_batches, row_bytes
from agent.admin.topics import TopicError, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.security import KEY_BYTES_MAX, CredentialId, ScramRow
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of
from protocol.errors import ErrorCode
from protocol.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, SECURITY_NAME_CHARS_MAX

API_KEY = 51
MISSING: Final = "Attempt to delete a user credential that does not exist"


@dataclass(frozen=True, slots=True)
class _Change:
    """One user's change: of the two values exactly one is there."""

    user: str
    deletion: CredentialId | None = None
    upsertion: ScramRow | None = field(default=None, repr=False)


async def handle(services: Services, request: Request, body: Any) -> Values:
    mentions = Counter(change.name for change in (*body.deletions, *body.upsertions))
    errors: dict[str, TopicError] = {}
    changes: list[tuple[_Change, int]] = []
    pacer = CooperativeYield(services.clock)
    for row in (*body.deletions, *body.upsertions):
        try:
            if mentions[row.name] > 1:
                raise TopicError(
                    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
                )
            changes.append((_read_change(services, row), row_bytes(row.name) + 3 * KEY_BYTES_MAX))
        except TopicError as error:
            errors[row.name] = error
        await pacer.step()
    proposals = SecurityChanges(services.ledger, services.clock, deadline_s(services.clock))
    for batch in entry_batches(changes):
        try:
            missing = await proposals.alter_scram(
                [change.deletion for change in batch if change.deletion is not None],
                [change.upsertion for change in batch if change.upsertion is not None],
            )
        except TopicError as error:
            errors.update({change.user: error for change in batch})
        else:
            errors.update({user: TopicError(ErrorCode.resource_not_found, MISSING) for user, _ in missing})
    return {"results": [_result(name, errors.get(name)) for name in mentions]}


def _read_change(services: Services, row: Any) -> _Change:
    """The change of a row of either kind. Raises `TopicError`."""
    if not row.name:
        raise TopicError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if len(row.name) > SECURITY_NAME_CHARS_MAX:
        raise TopicError(
            ErrorCode.policy_violation,
            f"The user's name has {len(row.name)} characters, {SECURITY_NAME_CHARS_MAX} is the most.",
        )
    try:
        mechanism = ScramMechanism(row.mechanism)
    except ValueError as error:
        raise TopicError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism") from error
    if not hasattr(row, "salted_password"):
        return _Change(row.name, deletion=(row.name, mechanism))
    if row.iterations < SCRAM_ITERATIONS_MIN:
        raise TopicError(ErrorCode.unacceptable_credential, "Too few iterations")
    if row.iterations > SCRAM_ITERATIONS_MAX:
        raise TopicError(ErrorCode.unacceptable_credential, "Too many iterations")
    if not 0 < len(row.salt) <= KEY_BYTES_MAX or not row.salted_password:
        raise TopicError(
            ErrorCode.unacceptable_credential, f"A salt has 1 to {KEY_BYTES_MAX} bytes, and a password is not empty"
        )
    credential = credential_of(
        bytes(row.salted_password), salt=bytes(row.salt), iterations=row.iterations, mechanism=mechanism
    )
    credential_id = (row.name, mechanism)
    sealed = services.credential_seal.seal(credential_id, credential, services.ids)
    return _Change(row.name, upsertion=ScramRow.of(credential_id, sealed))


def _result(name: str, error: TopicError | None) -> Values:
    error_code = ErrorCode.none if error is None else error.error_code
    return {"user": name, "error_code": error_code, "error_message": None if error is None else error.message}
