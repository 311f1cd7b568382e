"""DescribeConfigs 1-4: configs of topics and of this broker, with where each value comes from.

Groups and client metrics have no configs yet: see docs/UNSUPPORTED.md.
Source: org.apache.kafka.server.ConfigHelper.describeConfigs (Kafka 4.3).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from agent.handlers.config_entries import broker_config_entries, topic_config_entries
from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from coordinator.topic_names import InvalidTopicName, validate_topic_name
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 32
EVERY_BROKER = ""


class ResourceType(IntEnum):
    """Kafka's codes (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4


class ConfigError(Exception):
    """A resource that cannot be described, as the client is told."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = request_body(request.frame)
    with_documentation = request.frame.api_version >= 3 and body.include_documentation
    results = []
    for resource in body.resources:
        result: dict[str, Any] = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }
        try:
            result["configs"] = await _configs(
                services, resource, with_synonyms=body.include_synonyms, with_documentation=with_documentation
            )
        except ConfigError as error:
            result |= {"error_code": error.error_code, "error_message": str(error)}
        results.append(result)
    return answer(request.frame, {"results": results})


async def _configs(
    services: Services, resource: Any, *, with_synonyms: bool, with_documentation: bool
) -> list[dict[str, Any]]:
    names = resource.configuration_keys or None  # none named: all of them
    match resource.resource_type:
        case ResourceType.TOPIC:
            return topic_config_entries(
                await _topic_configs(services, resource.resource_name),
                services.broker_configs,
                names,
                with_synonyms=with_synonyms,
                with_documentation=with_documentation,
            )
        case ResourceType.BROKER:
            if resource.resource_name == EVERY_BROKER:
                return []  # configs that were set for every broker by AlterConfigs: there are none
            if resource.resource_name != str(services.node_id):
                raise ConfigError(
                    ErrorCode.invalid_request,
                    f"Unexpected broker id, expected {services.node_id} or empty string, "
                    f"but received {resource.resource_name}",
                )
            return broker_config_entries(
                services.broker_configs, names, with_synonyms=with_synonyms, with_documentation=with_documentation
            )
        case other:
            raise ConfigError(ErrorCode.invalid_request, f"Unsupported resource type: {other}")


async def _topic_configs(services: Services, name: str) -> dict[str, str]:
    try:
        validate_topic_name(name)
    except InvalidTopicName as error:
        raise ConfigError(ErrorCode.invalid_topic_exception, str(error)) from error
    topic = await services.topics.by_name(name)
    if topic is None:
        raise ConfigError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")
    return topic.configs
