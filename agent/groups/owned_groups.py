"""Loads the groups with members that this agent coordinates, without a request for any of them.

In: the agents and the groups of the state, and a claim on each group. Out: loaded groups, and a log line about them. A
group without any request is loaded, too: if all its members are gone, their time-outs have to run somewhere.
"""

import asyncio
from collections.abc import Callable

from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.logging import log_loaded
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.group_values import GroupState
from protocol.limits import GROUP_IDS_PER_CLAIM_MAX, GROUPS_PER_TURN
from protocol.types import SessionId


class OwnedGroups:
    """The groups of one protocol that this agent has to load."""

    def __init__(
        self,
        *,
        ledger: LedgerClient,
        group_ledger: GroupLedger,
        clock: Clock,
        protocol: str,
        is_to_load: Callable[[GroupState], bool],
        load: Callable[[GroupState], object],
    ) -> None:
        """`is_to_load`: whether a group is of this protocol, has members, and is not loaded. `load`: loads a claimed
        group; it may raise `NotCoordinator`."""
        self._ledger = ledger
        self._group_ledger = group_ledger
        self._clock = clock
        self._protocol = protocol
        self._is_to_load = is_to_load
        self._load = load
        self._agents_before: list[tuple[SessionId, bool]] = []
        """The live agents when groups were loaded last."""
        self.is_load_due = False
        """A group with members was unloaded, or not loaded: this agent may be its coordinator still."""
        self._loaded: list[str] = []
        """Groups with members that were loaded since the last log line about it."""

    def note_loaded(self, group: GroupState) -> None:
        """Note that a group was loaded, by a request or here, for the log."""
        if group.has_members:
            self._loaded.append(group.group_id)

    async def load_due(self) -> None:
        """Load what this agent coordinates, if agents have come or gone, or the last attempt did not load all."""
        sessions = self._ledger.state.sessions
        agents = [(session_id, session.is_draining) for session_id, session in sessions.items()]
        if agents != self._agents_before or self.is_load_due:
            # Before the awaits: a group that is unloaded meanwhile makes another attempt due.
            self._agents_before, self.is_load_due = agents, False
            if not await self._load_all():
                self.is_load_due = True

    def log_loaded(self) -> None:
        """Log the groups that were loaded since the last call."""
        log_loaded(self._loaded, protocol=self._protocol)

    async def _load_all(self) -> bool:
        """Claim and load the groups; False where it has to be tried again."""
        pacer = CooperativeYield(self._clock, GROUPS_PER_TURN)
        group_ids: list[str] = []
        for group_id in tuple(self._ledger.state.groups):
            await pacer.step()
            group = self._ledger.state.groups.get(group_id)
            if group is not None and self._is_to_load(group) and self._coordinates(group_id):
                group_ids.append(group_id)
        is_done = True
        for first in range(0, len(group_ids), GROUP_IDS_PER_CLAIM_MAX):
            claims = (self._load_one(group_id) for group_id in group_ids[first : first + GROUP_IDS_PER_CLAIM_MAX])
            is_done = all(await asyncio.gather(*claims)) and is_done
        return is_done

    async def _load_one(self, group_id: str) -> bool:
        try:
            self._load(await self._group_ledger.claim(group_id))
        except NotCoordinator:
            # Raised, too, where this agent coordinates the group and its session is not confirmed: try again then.
            return not self._coordinates(group_id)
        return True

    def _coordinates(self, group_id: str) -> bool:
        return self._group_ledger.coordinator(group_id) == self._ledger.session
