"""DescribeCluster 0-2: the cluster's id and its agents.

There is no controller apart from the agents: the first one is named, because clients send their admin requests there.
Source: KIP-700, KIP-919 (endpoint types).
"""

from collections.abc import Sequence

from agent.handlers.authorized_operations import on_cluster
from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 60
BROKERS = 1
CONTROLLERS = 2


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = request_body(request.frame)
    endpoint_type = body.endpoint_type if request.frame.api_version >= 1 else BROKERS
    if endpoint_type != BROKERS:
        return answer(
            request.frame,
            {
                "error_code": ErrorCode.mismatched_endpoint_type
                if endpoint_type == CONTROLLERS
                else ErrorCode.unsupported_endpoint_type,
                "error_message": "The request was sent to an endpoint of type BROKER, but it wanted another type.",
                "endpoint_type": BROKERS,
                "cluster_id": "",
                "brokers": [],
            },
        )
    alive = services.brokers(request.listener)
    return answer(
        request.frame,
        {
            "error_code": ErrorCode.none,
            "endpoint_type": BROKERS,
            "cluster_id": services.cluster_id,
            "controller_id": alive[0].node_id if alive else -1,
            "brokers": [
                {
                    "broker_id": broker.node_id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.zone,
                    "is_fenced": False,
                }
                for broker in alive
            ],
            "cluster_authorized_operations": on_cluster(is_asked=body.include_cluster_authorized_operations),
        },
    )
