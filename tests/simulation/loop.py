"""An event loop without I/O whose time is virtual and whose order is drawn from a seed.

Rule: nothing here reads a clock, an address or a hash. Callbacks that are ready run in an order that the seed chooses;
when none is ready, time jumps to the next timer. Every callback belongs to the agent in whose context it was scheduled
(`NODE`), or to the world: so an agent is killed by dropping all that belongs to it, between any two callbacks of it and
without a cleanup, and paused by holding it back. What runs in a thread elsewhere runs at once here, and its result
comes some moments later.
"""

import asyncio
import heapq
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Protocol

THREAD_SECONDS_MAX = 0.004


class Owner(Protocol):
    """To whom callbacks belong: one life of an agent."""

    is_dead: bool

    def may_run(self, handle: asyncio.Handle) -> bool:
        """Whether its callback may run now. One that may not is dropped, unless the owner keeps it for later."""
        ...

    def lose_power(self) -> None:
        """End at once, with the disk as a loss of power leaves it."""
        ...


NODE: ContextVar[Owner | None] = ContextVar("NODE", default=None)
"""Whose callbacks are scheduled in this context; None is the world."""


class OutOfSteps(Exception):
    """The run took more callbacks than it may: something turns in circles."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _number = 0

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks until told to stop."""

    def __init__(self, chance: random.Random, *, choice_max: int, steps_max: int) -> None:
        """`choice_max`: among how many of the ready callbacks, oldest first, the next one is drawn."""
        self._is_over = True
        super().__init__()
        self._chance = chance
        self._choice_max = choice_max
        self._steps_max = steps_max
        self._now_s = 0.0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_count = 0
        self._tasks_count = 0
        self._is_over = False
        self.steps_count = 0
        self.tasks: list[asyncio.Task[Any]] = []
        """Every task that was ever made: kept so that none is thrown away, and cleaned up, in the middle of the run."""
        self.connect: Callable[[Callable[[], Any], str], Coroutine[Any, Any, Any]] = _no_network
        self.on_error: Callable[[dict[str, Any]], None] = lambda context: None

    # What asyncio asks for.

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_over

    def is_closed(self) -> bool:
        return self._is_over

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_over:
            self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_over:
            self._timers_count += 1
            heapq.heappush(self._timers, (when, self._timers_count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        self._tasks_count += 1
        _Task._number = self._tasks_count  # the base class asks for the hash before the object is made
        task = _Task(coro, loop=self, name=name or f"task {self._tasks_count}", context=context)
        task._number = self._tasks_count
        self.tasks.append(task)
        return task

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **others: object
    ) -> Any:  # noqa: ANN401 - as asyncio has it
        """By whatever network the world has."""
        return await self.connect(protocol_factory, host)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ANN401
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(self.thread_seconds(), _fail, future, error)
        else:
            self.call_later(self.thread_seconds(), _settle, future, result)
        return future

    def thread_seconds(self) -> float:
        """How long the work of a thread takes this time."""
        return self._chance.random() * THREAD_SECONDS_MAX

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_over:
            self.on_error(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # Running.

    def run(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run `main` to its end, and everything else as far as it goes until then. Raises what `main` raises."""
        with self._current():
            task = self.create_task(main, name="main")
            while not task.done():
                self._step()
            self._is_over = True
            task.result()

    def release(self, handles: list[asyncio.Handle]) -> None:
        """What was held back may run."""
        self._ready.extend(handles)

    @contextmanager
    def _current(self) -> Iterator[None]:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        asyncio.events._set_running_loop(self)
        try:
            yield
        finally:
            asyncio.events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_over:
            self.call_soon(self.create_task, generator.aclose())

    def _step(self) -> None:
        ready = self._ready
        while self._timers and (not ready or self._timers[0][0] <= self._now_s):
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled():
                continue
            self._now_s = max(self._now_s, when)
            ready.append(timer)
        assert ready, "nothing is ready and no timer is set: the main task waits for ever"
        choices = min(len(ready), self._choice_max)
        handle = ready.pop(int(self._chance.random() * choices) if choices > 1 else 0)
        if handle.cancelled():
            return
        owner = _owner(handle)
        if owner is not None and not owner.may_run(handle):
            return
        self.steps_count += 1
        if self.steps_count > self._steps_max:
            raise OutOfSteps(f"{self.steps_count} callbacks, at {self._now_s:.3f} s: {handle}")
        handle._run()


def _owner(handle: asyncio.Handle) -> Owner | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(NODE)


async def _no_network(_protocol_factory: Callable[[], Any], host: str) -> Any:  # noqa: ANN401
    raise ConnectionRefusedError(f"nobody listens at {host}")


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
