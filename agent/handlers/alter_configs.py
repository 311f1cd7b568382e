"""AlterConfigs: replaces all configs of a resource. Deprecated since KIP-339.

- Versions: 0-2.
- Behaviour: a config that the request does not name is removed. Resources are topics, brokers, groups and telemetry
  subscriptions; loggers are rejected, as in Kafka.
- Source: kafka.server.ConfigAdminManager.preprocess, org.apache.kafka.controller.ConfigurationControlManager (Kafka
  4.3).
"""

from typing import Any

from agent.admin.configs import Alteration
from agent.request.config_alterations import alter_all
from agent.request.config_rights import ConfigRights
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_TOPIC
from coordinator.commands.admin import OperationKind

API_KEY = 33


async def handle(services: Services, request: Request, body: Any) -> Values:
    wanted = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            is_whole=True,
            operations=[(config.name, OperationKind.SET, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
    rights = ConfigRights(
        request.rights, topic=ALTER_CONFIGS_TOPIC, group=ALTER_CONFIGS_GROUP, cluster=ALTER_CONFIGS_CLUSTER
    )
    rows = await alter_all(services, rights, wanted, is_validate_only=body.validate_only)
    return {"responses": rows}
