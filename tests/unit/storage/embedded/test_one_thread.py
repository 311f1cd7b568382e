"""Calls in order, futures in order, and nothing held or lost on the way."""

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from storage.embedded.one_thread import OneThread


class CallFailed(Exception):
    """What a call of these tests raises."""


class Large:
    """Stands for the bytes that a call holds."""


def refuse() -> None:
    raise CallFailed


async def test_calls_run_in_the_order_of_their_submission_in_one_thread() -> None:
    thread = OneThread("test")
    ran: list[tuple[int, str]] = []

    def note(number: int) -> None:
        ran.append((number, threading.current_thread().name))

    futures = [thread.submit(partial(note, number)) for number in range(100)]
    await asyncio.gather(*futures)
    thread.join()
    assert ran == [(number, "test") for number in range(100)]


async def test_a_future_gets_what_its_call_returns_or_raises() -> None:
    thread = OneThread("test")
    assert await thread.submit(lambda: 7) == 7
    with pytest.raises(CallFailed):
        await thread.submit(refuse)
    assert await thread.submit(lambda: "after") == "after"
    thread.join()


async def test_a_cancelled_call_is_carried_out_all_the_same() -> None:
    thread = OneThread("test")
    may_run = threading.Event()
    ran: list[str] = []
    first = thread.submit(may_run.wait)
    second = thread.submit(lambda: ran.append("second"))
    third = thread.submit(refuse)
    assert second.cancel()
    assert third.cancel()
    may_run.set()
    assert await first
    assert await thread.submit(lambda: list(ran)) == ["second"]
    thread.join()


async def test_an_idle_thread_holds_on_to_nothing() -> None:
    thread = OneThread("test")
    large = Large()
    held = weakref.ref(large)
    await thread.submit(partial(id, large))
    await thread.submit(lambda: None)
    del large
    gc.collect()
    assert held() is None
    thread.join()


def test_what_was_submitted_is_carried_out_when_the_loop_has_ended() -> None:
    thread = OneThread("test")
    may_run = threading.Event()
    ran: list[str] = []

    async def submit() -> None:
        thread.submit(may_run.wait)
        thread.submit(lambda: ran.append("late"))

    asyncio.run(submit())
    may_run.set()
    thread.join()
    assert ran == ["late"]


def test_one_that_was_never_used_ends_too() -> None:
    thread = OneThread("test")
    thread.end()
    thread.join()
