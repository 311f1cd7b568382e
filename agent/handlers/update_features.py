"""UpdateFeatures 0-2: no feature has levels that could be changed, so each change is refused with the reason (KIP-584).

Level 0 means that a feature is off, and all of them are: that is done already. The first feature that cannot be had
decides the whole answer, INVALID_UPDATE_VERSION, and no other is told, as in Kafka. Rules of the state are not features
of this kind: agents raise them by themselves (safety rule S3).
Source: org.apache.kafka.controller.FeatureControlManager.updateFeatures, QuorumFeatures.reasonNotSupported (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from agent.turns import rows_at_most, work
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 57
FIRST_WITH_UPGRADE_TYPES = 1
UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade (org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType)."""
OFF = 0


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await work(rows_at_most(request.frame.body), request_body, request.frame)
    refused = (_refusal(update, request.frame.api_version) for update in body.feature_updates)
    reason = next((text for text in refused if text is not None), None)
    if reason is not None:
        refusal = {"error_code": ErrorCode.invalid_update_version, "error_message": reason, "results": []}
        return answer(request.frame, refusal)
    results = [
        {"feature": update.feature, "error_code": ErrorCode.none, "error_message": None}
        for update in body.feature_updates
    ]
    return answer(request.frame, {"error_code": ErrorCode.none, "error_message": None, "results": results})


def _refusal(update: Any, version: int) -> str | None:
    """Why the level cannot be had; None where it is the feature's already."""
    level = update.max_version_level
    if version >= FIRST_WITH_UPGRADE_TYPES and update.upgrade_type not in UPGRADE_TYPES:
        reason = "There is no such upgrade type."
    elif level < OFF:
        reason = "A feature version cannot be less than 0."
    elif level > OFF:
        reason = "No agent supports this feature."
    else:
        return None
    return f"Invalid update version {level} for feature {update.feature}. {reason}"
