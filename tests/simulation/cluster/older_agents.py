"""Agents of an older version of the program, and their upgrade one after another.

Rule: an agent of the first version is today's program that knows the first rules alone: it announces these, refuses to
serve under others, and while it lives no others come into force. Whether it could read what the others write is judged
where that arrives: `tests.simulation.audit.older_forms`.
"""

from collections.abc import Sequence

from agent.runtime.clock import SystemClock
from coordinator.commands.rules import RULES_NEWEST
from tests.simulation.cluster.agents import AgentInWorld

STOPS_SECONDS_MAX = 60.0


async def upgrade_one_after_another(agents: Sequence[AgentInWorld], seconds: float) -> None:
    """Each stops in order, or is dead, and begins again as the newer program."""
    clock = SystemClock()
    for agent in agents:
        await clock.sleep(seconds / (len(agents) + 1))
        agent.rules_known = RULES_NEWEST
        life, waited_s = agent.life, 0.0
        if life is not None:
            life.drain()
        while agent.life is life is not None and waited_s < STOPS_SECONDS_MAX:
            await clock.sleep(0.5)
            waited_s += 0.5
        if agent.life is life is not None:
            agent.crash()
        agent.start()
