"""The processor time of one piece of work: its steps on the event loop, and the functions that it runs in threads.

A meter wraps a coroutine and adds up its steps, so that what else the loop does meanwhile is not counted. Functions
that the coroutine, or a task that it starts, runs by `agent.runtime.threads.run_in_thread` are counted by the context.
"""

from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Final, TypeVar

from agent.runtime.clock import Clock

T = TypeVar("T")

CPU_METER: Final[ContextVar["CpuMeter | None"]] = ContextVar("CPU_METER", default=None)
"""The meter of the work that runs now; None where it is not measured."""


class CpuMeter:
    """Measures one coroutine."""

    __slots__ = ("_clock", "_spans")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans: list[float] = []  # threads append to it

    @property
    def seconds(self) -> float:
        """The processor time until now."""
        return sum(self._spans)

    async def measure(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, whose time is counted."""
        token = CPU_METER.set(self)
        try:
            return await _Steps(self, work)
        finally:
            CPU_METER.reset(token)

    def call(self, function: Callable[[], T]) -> T:
        """The function's result; the time that it takes of the calling thread is counted."""
        began_s = self._clock.thread_cpu_s()
        try:
            return function()
        finally:
            self._spans.append(self._clock.thread_cpu_s() - began_s)


class _Steps(Generator[object, object, T]):
    """A coroutine whose steps are measured one by one. Errors and cancellations are its own affair."""

    def __init__(self, meter: CpuMeter, work: Coroutine[object, object, T]) -> None:
        self._meter = meter
        self._work = work

    def __await__(self) -> Generator[object, object, T]:
        return self

    def send(self, value: object) -> object:
        return self._meter.call(partial(self._work.send, value))

    def throw(
        self,
        error: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        raised = value if isinstance(value, BaseException) else error
        assert isinstance(raised, BaseException), "the event loop raises exceptions, not classes of them"
        return self._meter.call(partial(self._work.throw, raised))
