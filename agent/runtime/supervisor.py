"""Restarts the agent's background tasks after environment errors, and ends the agent on a bug.

Rule: after an error of the environment (store, ledger, files, network, time) a task starts again after a growing pause.
Any other error is a bug or a contradiction and ends the agent: a broker that guesses is worse than a restart.
`agent.runtime.outages` logs outages of ledger and store once for all tasks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from coordinator.ledger.port import LedgerCorrupt, LedgerError, LedgerUnavailable, OutcomeUnknown
from storage.object_store import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

ENVIRONMENT_ERRORS = (StoreError, LedgerError, OutcomeUnknown, OSError, TimeoutError)
OUTAGES = (StoreUnavailable, LedgerUnavailable)
PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0
HEALTHY_SECONDS = 60.0
"""After a run of this length the first pause applies again."""

Run = Callable[[], Awaitable[object]]
T = TypeVar("T")


class Supervisor:
    """A task group whose tasks have names. Leaving the block waits for them; call `stop` first to end them.

    A task that raises anything but an environment error cancels all others, and the block raises it in an
    `ExceptionGroup`.
    """

    def __init__(self, *, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.restarts_count = 0

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._group.__aexit__(kind, error, traceback)

    def start(self, name: str, run: Run, *, is_restarted: bool = True) -> None:
        """Run `run()` as the task `name`. Without restarts its first error ends the agent.

        A task that returns is done, and its name is free again.
        """
        assert name not in self._tasks or self._tasks[name].done(), f"task {name} is already running"
        work = self._run_again(name, run) if is_restarted else _run_once(run)
        self._tasks[name] = self._group.create_task(work, name=name)

    async def stop(self, *names: str) -> None:
        """Cancel the named tasks, or all, and return when they have ended."""
        stopping = [task for name, task in self._tasks.items() if (not names or name in names) and not task.done()]
        for task in stopping:
            task.cancel()
        if stopping:
            await asyncio.wait(stopping)

    async def _run_again(self, name: str, run: Run) -> None:
        pause_s = PAUSE_SECONDS_FIRST
        while True:
            started_s = self._clock.monotonic_s()
            try:
                await run()
            except LedgerCorrupt:
                raise
            except ENVIRONMENT_ERRORS as error:
                if self._clock.monotonic_s() - started_s >= HEALTHY_SECONDS:
                    pause_s = PAUSE_SECONDS_FIRST
                self.restarts_count += 1
                log.log(
                    logging.DEBUG if isinstance(error, OUTAGES) else logging.WARNING,
                    "a background task failed; it starts again after a pause",
                    extra={"task": name, "reason": f"{type(error).__name__}: {error}", "pause_s": round(pause_s, 1)},
                )
            else:
                return
            await self._clock.sleep(pause_s * (0.5 + self._ids.jitter()))
            pause_s = min(pause_s * 2, PAUSE_SECONDS_MAX)


async def _run_once(run: Run) -> None:
    await run()


def begin_in(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Start `work` as a task of an entered group; None if the group has ended or is being cancelled.

    A timer or a callback may fire after the end of the agent's tasks: then it starts nothing.
    """
    try:
        return tasks.create_task(work)
    except RuntimeError:  # the only sign that the group accepts no tasks
        work.close()
        return None


async def contain(run: Run, on_bug: Callable[[], None]) -> None:
    """Run the work of one client. A bug ends only this work: its traceback is logged, and `on_bug` is called.

    A client must not be able to end the agent. A corrupt ledger still ends it.
    """
    try:
        await run()
    except LedgerCorrupt:
        raise
    except Exception:
        log.exception("a bug ended the handling of a request; its connection is closed: report it")
        on_bug()


async def result_or_error(work: Awaitable[T]) -> T | Exception:
    """The result of `work`, or what it raised: for a task of a group, which an error would end. A corrupt ledger does.

    The caller raises the error where it waits for the task.
    """
    try:
        return await work
    except LedgerCorrupt:
        raise
    except Exception as error:
        return error
