"""Facts about a connection's client beyond its requests.

The name and version of its software are what it said in ApiVersions (KIP-511).
Source: org.apache.kafka.common.network.ClientInformation (Kafka 4.3).
"""

import uuid
from dataclasses import dataclass

UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """One for each connection, told apart by identity."""

    software_name: str = UNKNOWN
    software_version: str = UNKNOWN
    instance_id: uuid.UUID | None = None
    """By which the client told its metrics here last (KIP-714)."""
