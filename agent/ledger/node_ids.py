"""The node id of an agent. Clients know brokers by it, so it follows from the agent's name and never changes."""

import zlib
from collections.abc import Iterable
from typing import Final

from coordinator.state.state import SessionState

DEFAULT_NAME: Final = "penstock"
DEFAULT_NODE_ID: Final = 1
NODE_ID_MAX: Final = (1 << 31) - 1


def node_id_of(name: str, sessions: Iterable[SessionState]) -> int:
    """The id of the agent `name`: 1 for `penstock`, else from the name's CRC-32; the next one that is free if another
    agent of `sessions` has it."""
    # Sessions of dead agents count, too: apply rejects a second agent with their id (`coordinator.apply.sessions`), and
    # an agent that was renamed could not start (S12).
    node_ids = {session.node_id for session in sessions if session.name != name}
    node_id = DEFAULT_NODE_ID if name == DEFAULT_NAME else zlib.crc32(name.encode()) & NODE_ID_MAX
    while node_id in node_ids or node_id == 0:
        node_id = node_id % NODE_ID_MAX + 1
    return node_id
