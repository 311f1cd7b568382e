"""DescribeCluster: the cluster's id and its agents.

- Versions: 0-2. 1 adds endpoint types (KIP-919): one for controllers is an error. 2 adds fenced brokers (KIP-1073):
  agents that drain.
- Behaviour: an agent names itself as the controller, because clients send their admin requests there.
- Differs from Kafka: there is no controller apart from the agents.
- Source: org.apache.kafka.server.KafkaApis.handleDescribeCluster (Kafka 4.3), KIP-700.
"""

from typing import Any

from agent.admin.cluster_view import BrokerView, leaving_brokers
from agent.request.authorized_operations import on_cluster
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import DESCRIBE_CLUSTER
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode

API_KEY = 60
BROKERS = 1
CONTROLLERS = 2
FIRST_WITH_ENDPOINT_TYPES = 1
FIRST_WITH_FENCED = 2


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    endpoint_type = body.endpoint_type if version >= FIRST_WITH_ENDPOINT_TYPES else BROKERS
    if endpoint_type != BROKERS:
        return {
            "error_code": ErrorCode.mismatched_endpoint_type
            if endpoint_type == CONTROLLERS
            else ErrorCode.unsupported_endpoint_type,
            "error_message": "The request was sent to an endpoint of type BROKER, but it wanted another type.",
            "endpoint_type": BROKERS,
            "cluster_id": "",
            "brokers": [],
        }
    if body.include_cluster_authorized_operations:
        await request.rights.settle(*DESCRIBE_CLUSTER, CLUSTER_NAME)
    alive = services.brokers(request.listener)
    are_fenced_wanted = version >= FIRST_WITH_FENCED and body.include_fenced_brokers
    fenced = leaving_brokers(services.state, request.listener) if are_fenced_wanted else []
    return {
        "error_code": ErrorCode.none,
        "endpoint_type": BROKERS,
        "cluster_id": services.cluster_id,
        "controller_id": services.controller_id(request.listener),
        "brokers": [
            *(_broker_row(broker, is_fenced=False) for broker in alive),
            *(_broker_row(broker, is_fenced=True) for broker in fenced),
        ],
        "cluster_authorized_operations": on_cluster(
            request.rights, is_asked=body.include_cluster_authorized_operations
        ),
    }


def _broker_row(broker: BrokerView, *, is_fenced: bool) -> dict[str, Any]:
    return {
        "broker_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.zone,
        "is_fenced": is_fenced,
    }
