"""Background work that is repeated after pauses. A `PeriodicJob` describes it, and one loop runs each of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agent.runtime.clock import Clock
from agent.runtime.supervisor import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """Work that is repeated indefinitely. An error ends the loop; the supervisor begins it again."""

    name: str
    """The name of its task."""
    interval_s: float | Callable[[], float]
    """The pause between the end of one run and the next one; a function is called before each pause."""
    run_once: Callable[[], Awaitable[object]]
    is_for_leader: bool = False
    """Whether a run is left out on an agent that is not the maintenance leader."""
    is_first_at_once: bool = False
    """Whether the first run begins at once, instead of after a pause."""

    async def run(self, clock: Clock, is_leader: Callable[[], bool]) -> None:
        """Repeat the work. Runs until it is cancelled."""
        is_paused = not self.is_first_at_once
        while True:
            if is_paused:
                await clock.sleep(self.interval_s() if callable(self.interval_s) else self.interval_s)
            if not self.is_for_leader or is_leader():
                await self.run_once()
            is_paused = True


def loops_of(*jobs: PeriodicJob, clock: Clock, is_leader: Callable[[], bool]) -> Mapping[str, Run]:
    """The loops of jobs, by the names of their tasks."""
    return {job.name: partial(job.run, clock, is_leader) for job in jobs}
