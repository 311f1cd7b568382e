"""Frames before a login are let through a few at a time, in order, and other work of the loop goes on in between."""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

from agent.server.login_turns import LoginTurns
from protocol.limits import UNAUTHENTICATED_FRAMES_PER_TURN_MAX as FRAMES_OF_A_TURN

TURNS = 5


def waits(take: Coroutine[Any, Any, None]) -> bool:
    """Whether the coroutine does not end at once."""
    try:
        take.send(None)
    except StopIteration:
        return False
    take.close()
    return True


async def test_a_few_frames_are_let_through_at_once() -> None:
    turns = LoginTurns()
    assert [waits(turns.take()) for _ in range(FRAMES_OF_A_TURN)] == [False] * FRAMES_OF_A_TURN
    assert waits(turns.take())


async def test_of_many_frames_a_few_are_let_through_in_each_turn_of_the_loop_in_their_order() -> None:
    turns, taken = LoginTurns(), list[int]()

    async def take(number: int) -> None:
        await turns.take()
        taken.append(number)

    count = FRAMES_OF_A_TURN * TURNS
    tasks = [asyncio.ensure_future(take(number)) for number in range(count)]
    seen = [0]
    while len(taken) < count:
        await asyncio.sleep(0)
        seen.append(len(taken))
    assert taken == list(range(count))
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) == FRAMES_OF_A_TURN
    await asyncio.gather(*tasks)


async def test_a_frame_whose_connection_is_closed_takes_no_turn_from_the_others() -> None:
    turns = LoginTurns()
    tasks = [asyncio.ensure_future(turns.take()) for _ in range(3 * FRAMES_OF_A_TURN)]
    await asyncio.sleep(0)
    for task in tasks[FRAMES_OF_A_TURN : 2 * FRAMES_OF_A_TURN]:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [task.cancelled() for task in tasks] == [number // FRAMES_OF_A_TURN == 1 for number in range(len(tasks))]
    assert all(task.done() for task in tasks)


async def test_after_a_burst_a_frame_is_let_through_at_once_again() -> None:
    turns = LoginTurns()
    await asyncio.gather(*(turns.take() for _ in range(TURNS * FRAMES_OF_A_TURN)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waits(turns.take())
