"""A thread that carries out blocking calls, one after the other, for an event loop.

Rule: calls run in the order of `submit`, and their futures are settled in that order. What was submitted is carried
out, even if its future was cancelled or its loop has ended meanwhile. It does what an executor of one thread does with
two thirds of its CPU, and is on the way of every flush.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


class OneThread:
    """Begins with the first call. All calls come from one event loop; `end` or `join` ends it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """The future gets what `work` returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def call() -> None:
            try:
                settle = partial(_finish, future, work())
            except BaseException as error:  # raised where the future is awaited
                settle = partial(_fail, future, error)
            with suppress(RuntimeError):  # the loop is closed, so no task awaits the future any more
                loop.call_soon_threadsafe(settle)

        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(call)
        return future

    def end(self) -> None:
        """Let the thread end after what was submitted. Nothing may be submitted afterwards."""
        self._calls.put(None)

    def join(self) -> None:
        """End the thread and wait for it: blocking, for another thread than the event loop's."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # while the thread waits it holds on to nothing


def _finish(future: asyncio.Future[_Result], result: _Result) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[_Result], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
