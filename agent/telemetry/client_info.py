"""Properties of a connection's client.

The client sent the name and version of its software in ApiVersions (KIP-511).
Source: org.apache.kafka.common.network.ClientInformation (Kafka 4.3).
"""

import uuid
from dataclasses import dataclass

UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """The client of one connection. Compared by identity."""

    software_name: str = UNKNOWN
    software_version: str = UNKNOWN
    instance_id: uuid.UUID | None = None
    """The instance id of the client's last telemetry request (KIP-714)."""
