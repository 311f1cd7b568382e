"""How late the event loop runs a timer: the first sign of an agent that has too little processor time."""

from collections.abc import Callable

from agent.runtime.clock import Clock
from protocol.limits import LOOP_LAG_INTERVAL_S


async def observe_loop_lag(clock: Clock, observe: Callable[[float], None]) -> None:
    """Pass the seconds by which each of many short sleeps took too long. Runs until it is cancelled."""
    while True:
        began_s = clock.monotonic_s()
        await clock.sleep(LOOP_LAG_INTERVAL_S)
        observe(max(0.0, clock.monotonic_s() - began_s - LOOP_LAG_INTERVAL_S))
