"""Requests over a network that delays, loses and cuts: from one agent to the ledger, or to the bucket.

Rule: what was sent happens at the server when it arrives there, whatever became of the sender meanwhile. Three things
can be lost: the request, the answer, or time (it arrives long after the sender gave up). The sender cannot tell which.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from typing import TypeVar

from coordinator.ledger.port import LedgerError
from storage.object_store import StoreError
from tests.simulation.history import History

T = TypeVar("T")

LATE_SECONDS_MAX = 30.0


class Loss(Enum):
    """What becomes of a request on a shaky link."""

    REQUEST = "request lost"
    ANSWER = "answer lost"
    LATE = "late"


class Unanswered(Exception):
    """No answer, or none in time: what was asked for may have happened."""


class Link:
    """One agent's way to one server."""

    def __init__(
        self,
        *,
        name: str,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
        history: History,
        outside: Context,
        delay_s: float,
        timeout_s: float,
    ) -> None:
        """`outside`: the context of what belongs to no agent. `delay_s`: of one message, on average."""
        self.name = name
        self._loop = loop
        self._chance = chance
        self._history = history
        self._outside = outside
        self._delay_s = delay_s
        self._timeout_s = timeout_s
        self.is_cut = False
        self.is_silent = False
        """While it is cut: nothing comes back, rather than a refusal."""
        self.loss_chance = 0.0
        self.slow_chance = 0.0

    @property
    def now_s(self) -> float:
        """The world's time."""
        return self._loop.time()

    def delay(self) -> float:
        seconds = self._chance.expovariate(1.0) * self._delay_s
        if self.slow_chance and self._chance.random() < self.slow_chance:
            seconds += self._chance.random() * 2 * self._timeout_s
        return seconds

    def choose(self, count: int) -> int:
        """One of `count` numbers."""
        return int(self._chance.random() * count)

    async def call(self, what: str, act: Callable[[], T]) -> T:
        """What `act()` returns or raises at the server. Raises `Unanswered`."""
        if self.is_cut and not self.is_silent:
            await self.pause(self.delay())
            raise Unanswered(f"{self.name}: connection refused")
        answer: asyncio.Future[T] = self._loop.create_future()
        loss = self._loss()
        if loss is not None:
            self._history.note(self.name, loss.value, what)
        if loss is not Loss.REQUEST:
            there = self._chance.random() * LATE_SECONDS_MAX if loss is Loss.LATE else self.delay()
            self._later(there, self._arrive, what, act, answer, loss)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError as error:
            raise Unanswered(f"{self.name}: {what} was not answered in {self._timeout_s} s") from error

    async def pause(self, seconds: float) -> None:
        """Wait; whoever waits belongs to the agent, the timer to the world."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._later(seconds, _finish, done)
        await done

    def _loss(self) -> Loss | None:
        if not self.loss_chance or self._chance.random() >= self.loss_chance:
            return None
        return self._chance.choice(tuple(Loss))

    def _arrive(self, what: str, act: Callable[[], T], answer: "asyncio.Future[T]", loss: Loss | None) -> None:
        if self.is_cut:
            self._history.note(self.name, "cut off", what)
            return
        try:
            result = act()
        except (LedgerError, StoreError) as error:
            self._history.note(self.name, type(error).__name__, what)
            if loss is None:
                self._later(self.delay(), self._refuse, answer, error)
        else:
            if loss is None:
                self._later(self.delay(), self._return, answer, result)

    def _return(self, answer: "asyncio.Future[T]", result: T) -> None:
        if not self.is_cut and not answer.done():
            answer.set_result(result)

    def _refuse(self, answer: "asyncio.Future[T]", error: Exception) -> None:
        if not self.is_cut and not answer.done():
            answer.set_exception(error)

    def _later(self, seconds: float, callback: Callable[..., None], *args: object) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._outside)


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
