"""Simulated programs that ask how far groups have come, as those that tell the lag of consumers do.

Rule: as `tests.simulation.clients.clients`. They ask at any time, so also while commits are on their way.
"""

from collections.abc import Callable, Collection, Mapping

from protocol.errors import ErrorCode
from tests.simulation.clients import group_wire as wire
from tests.simulation.clients.clients import REQUEST_SECONDS, ClientWorld
from tests.simulation.clients.group_members import LOOK_AGAIN, CoordinatorLink
from tests.simulation.clients.wire import Place
from tests.simulation.cluster.connections import ConnectionLost

MONITOR_SECONDS_MAX = 0.4
Told = Callable[[str, str, Mapping[Place, int], float], None]


class LagMonitor:
    """One program, which watches one group."""

    def __init__(self, world: ClientWorld, group_id: str, places: Collection[Place], told: Told | None = None) -> None:
        """`told`: who judges what it is told; the auditor of groups where it is None."""
        self._told = told or world.groups.told_offsets
        self._world = world
        self._name = f"monitor of {group_id}"
        self._group_id = group_id
        self._places = places
        self._link = CoordinatorLink(world, self._name, group_id)

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._world.clock.sleep(self._world.chance.random() * MONITOR_SECONDS_MAX)
            connection = await self._link.connection()
            asked_s = self._world.around.loop.time()
            body = wire.offset_fetch(self._group_id, self._places)
            try:
                answer = await connection.ask(wire.OFFSET_FETCH, wire.OFFSET_FETCH_VERSION, body, REQUEST_SECONDS)
            except ConnectionLost:
                self._link.forget()
                continue
            error, offsets = wire.read_offsets_fetched(answer)
            if not error:
                self._told(self._name, self._group_id, offsets, asked_s)
            elif error in LOOK_AGAIN:
                self._link.forget()
            else:
                what = f"{self._name} was told {ErrorCode(error).name}"
                self._world.around.history.violation(what)
