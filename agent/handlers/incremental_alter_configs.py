"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single configs (KIP-339).

- Versions: 0-1.
- Behaviour: resources are topics, brokers, groups, telemetry subscriptions (KIP-714), and this agent's loggers
  (KIP-412).
- Differs from Kafka: an operation that does not exist is an invalid request for every type of resource.
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

API_KEY = 44


async def handle(services: Services, request: Request, body: Any) -> Values:
    wanted = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            is_whole=False,
            operations=[(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
    rights = ConfigRights(
        request.rights, topic=ALTER_CONFIGS_TOPIC, group=ALTER_CONFIGS_GROUP, cluster=ALTER_CONFIGS_CLUSTER
    )
    rows = await alter_all(services, rights, wanted, is_validate_only=body.validate_only)
    return {"responses": rows}
