"""Leaders of partitions and endpoints of nodes, in the tagged fields of Produce and Fetch answers (KIP-951)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.wire import INT32, pack_string, pack_unsigned_varint

_ID_EPOCH: Final = struct.Struct(">iiB")


@dataclass(slots=True, kw_only=True)
class LeaderAndEpoch:
    """The node that a client should ask from now on."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    """Where a node listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def pack_leader(leader: LeaderAndEpoch) -> bytes:
    """The structure, its empty tagged fields included."""
    return _ID_EPOCH.pack(leader.leader_id, leader.leader_epoch, 0)


def pack_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The compact array."""
    parts = [pack_unsigned_varint(len(endpoints) + 1)]
    for endpoint in endpoints:
        parts += (
            INT32.pack(endpoint.node_id),
            pack_string(endpoint.host, is_flexible=True),
            INT32.pack(endpoint.port),
            pack_string(endpoint.rack, is_flexible=True),
            b"\0",
        )
    return b"".join(parts)
