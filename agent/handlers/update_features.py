"""UpdateFeatures: raises or lowers transaction.version, the one feature that has levels (KIP-584).

- Versions: 0-2. 1 adds the type of upgrade and validation without a change.
- Behaviour: every other feature has the one level 0, which means off, so a change to it has no effect. The first change
  that is not possible decides the whole response, INVALID_UPDATE_VERSION, and nothing is changed, as in Kafka. A client
  that has begun under one level goes on with it until it reads the new one.
- Differs from Kafka: versions of the state's rules are not features. Agents raise them by themselves (safety rule S3).
- Source: org.apache.kafka.controller.FeatureControlManager.updateFeatures, QuorumFeatures.reasonNotSupported (Kafka
  4.3).
"""

from typing import Any

from agent.admin.topics import TopicError, before, catch_up, deadline_s
from agent.request.features import LEVEL_MIN, TRANSACTION_VERSION
from agent.request.messages import Values
from agent.request.services import Request, Services
from coordinator.commands.commands import Rejected
from coordinator.commands.transaction import SetTransactionVersion
from coordinator.state.state import TRANSACTION_VERSION_NEWEST
from protocol.errors import ErrorCode

API_KEY = 57
FIRST_WITH_UPGRADE_TYPES = 1
UPGRADE = 1
SAFE_DOWNGRADE = 2
UPGRADE_TYPES = (UPGRADE, SAFE_DOWNGRADE, 3)
"""The third is the unsafe downgrade (org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType)."""
OFF = 0


async def handle(services: Services, request: Request, body: Any) -> Values:
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    unsure = await catch_up(services.ledger, services.clock, end_s)
    if unsure is not None:
        return _error(unsure.error_code, unsure.message)
    level = services.state.transaction_version
    for update in body.feature_updates:
        reason = _rejection(update, request.frame.api_version, level)
        if reason is not None:
            return _error(ErrorCode.invalid_update_version, reason)
        if update.feature == TRANSACTION_VERSION:
            level = update.max_version_level
    is_validate_only = request.frame.api_version >= FIRST_WITH_UPGRADE_TYPES and body.validate_only
    if level != services.state.transaction_version and not is_validate_only:
        try:
            await before(end_s, services.clock, _set(services, level))
        except TopicError as error:
            return _error(error.error_code, error.message)
    results = [
        {"feature": update.feature, "error_code": ErrorCode.none, "error_message": None}
        for update in body.feature_updates
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


async def _set(services: Services, level: int) -> None:
    outcome = await services.ledger.propose(SetTransactionVersion(level=level))
    if isinstance(outcome, Rejected):
        raise TopicError(outcome.error_code, outcome.reason)


def _error(error_code: ErrorCode, reason: str | None) -> Values:
    return {"error_code": error_code, "error_message": reason, "results": []}


def _rejection(update: Any, version: int, transaction_version: int) -> str | None:
    """The reason why the level is not possible; None where it is, or where the feature has it already."""
    level = update.max_version_level
    is_known = update.feature == TRANSACTION_VERSION
    current, highest = (transaction_version, TRANSACTION_VERSION_NEWEST) if is_known else (OFF, OFF)
    upgrade_type = _upgrade_type(update, version)
    if upgrade_type not in UPGRADE_TYPES:
        reason = "There is no such upgrade type."
    elif level < OFF:
        reason = "A feature version cannot be less than 0."
    elif level > highest:
        reason = (
            f"Agents support the versions {LEVEL_MIN}-{highest}." if is_known else "No agent supports this feature."
        )
    elif level < current and upgrade_type == UPGRADE:
        reason = "Can't downgrade the version of this feature without setting the upgrade type to a downgrade."
    elif level > current and upgrade_type != UPGRADE:
        reason = "Can't downgrade to a newer version."
    else:
        return None
    return f"Invalid update version {level} for feature {update.feature}. {reason}"


def _upgrade_type(update: Any, version: int) -> int:
    if version >= FIRST_WITH_UPGRADE_TYPES:
        return int(update.upgrade_type)
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
