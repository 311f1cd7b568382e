"""Alters the configs of several resources, each by itself, for AlterConfigs and IncrementalAlterConfigs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.admin.configs import Alteration, ConfigError
from agent.admin.topics import TopicError, before, catch_up, deadline_s
from agent.request.config_rights import ConfigRights
from agent.request.services import Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode


async def alter_all(
    services: Services, rights: ConfigRights, wanted: Sequence[Alteration], *, is_validate_only: bool
) -> list[dict[str, Any]]:
    """Returns a row of the response for each resource. One that is named twice is not altered at all, as in Kafka."""
    mentions = Counter((each.resource_type, each.resource_name) for each in wanted)
    await rights.judge(wanted)
    end_s = deadline_s(services.clock)
    pacer = CooperativeYield(services.clock)
    unseen = await catch_up(services.ledger, services.clock, end_s)
    rows = []
    for each in wanted:
        error_code, message = ErrorCode.none, None
        try:
            if mentions[each.resource_type, each.resource_name] > 1:
                raise ConfigError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            denial = rights.denial(each.resource_type, each.resource_name)
            if denial is not None:
                raise ConfigError(*denial)
            if unseen is not None:
                raise unseen
            alteration = services.configs.alter(each, is_validate_only=is_validate_only)
            await before(end_s, services.clock, alteration)
        except ConfigError as error:
            error_code, message = error.error_code, str(error)
        except TopicError as error:
            error_code, message = error.error_code, error.message
        rows.append(
            {
                "error_code": error_code,
                "error_message": message,
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
            }
        )
        await pacer.step()
    return rows
