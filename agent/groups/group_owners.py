"""The coordinator of each group: rendezvous hashing over the live sessions, with a bounded cache."""

from agent.ledger.ledger_client import LedgerClient
from coordinator.commands.group_values import group_key
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import NO_POSITION
from protocol.limits import COORDINATORS_CACHED_MAX, GROUP_ID_BYTES_MAX
from protocol.types import SessionId


class GroupOwners:
    """The session that coordinates each group, as far as this agent has applied the ledger."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._live: list[tuple[SessionId, bool]] = []
        """The live sessions that the cache was computed with, and whether each is draining."""
        self._live_at = NO_POSITION
        """The ledger's position at which `_live` was read."""
        self.cache: dict[str, SessionId | None] = {}

    def owner(self, group_id: str) -> SessionId | None:
        """The coordinator's session; None while no agent lives."""
        self._drop_stale()
        try:
            return self.cache[group_id]
        except KeyError:
            owner = owner_of(group_key(group_id), self._ledger.state.sessions)
            if not is_too_long(group_id):  # no group can have such an id, and clients may invent many
                self._remember(group_id, owner)
            return owner

    def _drop_stale(self) -> None:
        # Sessions begin, drain and end by entries alone: at an unchanged position they are unchanged.
        state = self._ledger.state
        if state.position == self._live_at:
            return
        self._live_at = state.position
        live = [(session_id, session.is_draining) for session_id, session in state.sessions.items()]
        if live != self._live:
            self._live, self.cache = live, {}

    def _remember(self, group_id: str, owner: SessionId | None) -> None:
        if len(self.cache) >= COORDINATORS_CACHED_MAX:
            self.cache = {}
        self.cache[group_id] = owner


def is_too_long(group_id: str) -> bool:
    """Whether the id has more than GROUP_ID_BYTES_MAX bytes in UTF-8: entries name many groups."""
    return len(group_id.encode()) > GROUP_ID_BYTES_MAX
