"""Batches that unpack to much share one budget, in turn."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from agent.runtime import unpacking
from agent.runtime.clock import SystemClock
from agent.runtime.cpu_meter import CpuMeter
from agent.runtime.unpacking import UnpackingBudget, run_unpacking
from protocol.errors import DoesNotUnpack, ErrorCode
from protocol.limits import DECOMPRESSED_BYTES_MAX, MIB, UNPACKED_BYTES_UNRESERVED_MAX

SECONDS_MAX = 30


class Holder(threading.Thread):
    """Reserves bytes in a thread of its own, until it is let go."""

    def __init__(self, budget: UnpackingBudget, byte_count: int, log: list[str], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._budget, self._byte_count, self._log = budget, byte_count, log
        self.holds, self.may_leave = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._budget.reserve(self._byte_count):
            self._log.append(self.name)
            self.holds.set()
            assert self.may_leave.wait(SECONDS_MAX)

    def leave(self) -> None:
        self.may_leave.set()
        self.join(SECONDS_MAX)


def waiting(budget: UnpackingBudget, count: int) -> None:
    deadline = threading.Event()
    for _ in range(SECONDS_MAX * 200):
        if budget.waiting_count == count:
            return
        deadline.wait(0.005)
    raise AssertionError(f"{budget.waiting_count} wait, not {count}")


def test_reservations_share_the_budget_and_come_in_turn_past_small_ones_that_would_fit() -> None:
    budget, log = UnpackingBudget(10), list[str]()
    first = Holder(budget, 6, log, "first")
    assert first.holds.wait(SECONDS_MAX)
    large = Holder(budget, 8, log, "large")
    waiting(budget, 1)
    small = Holder(budget, 1, log, "small")
    waiting(budget, 2)
    assert (log, budget.held_bytes) == (["first"], 6)
    first.leave()
    assert large.holds.wait(SECONDS_MAX)
    assert small.holds.wait(SECONDS_MAX)
    assert (log, budget.held_bytes) == (["first", "large", "small"], 9)
    small.leave()
    large.leave()
    assert (budget.held_bytes, budget.waiting_count) == (0, 0)


def test_one_larger_than_the_budget_is_let_in_alone() -> None:
    budget, log = UnpackingBudget(10), list[str]()
    small = Holder(budget, 1, log, "small")
    assert small.holds.wait(SECONDS_MAX)
    large = Holder(budget, 11, log, "large")
    waiting(budget, 1)
    small.leave()
    assert large.holds.wait(SECONDS_MAX)
    large.leave()


def test_bytes_are_given_back_where_the_block_raises() -> None:
    budget = UnpackingBudget(10)
    with pytest.raises(ZeroDivisionError), budget.reserve(10):
        assert 1 / 0
    assert budget.held_bytes == 0


async def test_what_unpacks_to_little_needs_no_reservation() -> None:
    assert await run_unpacking(lambda bytes_max, more: (bytes_max, more, unpacking.UNPACKING.held_bytes), 5) == (
        UNPACKED_BYTES_UNRESERVED_MAX,
        5,
        0,
    )


async def test_large_batches_are_unpacked_one_at_a_time_with_a_reservation() -> None:
    at_once, most = 0, 0
    lock = threading.Lock()

    def unpack(bytes_max: int) -> int:
        nonlocal at_once, most
        if bytes_max < DECOMPRESSED_BYTES_MAX:
            raise DoesNotUnpack(ErrorCode.invalid_record, "too large")
        with lock:
            at_once += 1
            most = max(most, at_once)
        held = unpacking.UNPACKING.held_bytes
        with lock:
            at_once -= 1
        return held

    held = await asyncio.gather(*(run_unpacking(unpack) for _ in range(8)))
    assert (held, most) == ([DECOMPRESSED_BYTES_MAX] * 8, 1)
    assert unpacking.UNPACKING.held_bytes == 0


async def test_an_archive_pass_that_has_a_reservation_makes_produce_wait() -> None:
    holder = Holder(unpacking.UNPACKING, MIB, [], "archive pass")
    assert holder.holds.wait(SECONDS_MAX)

    def unpack(bytes_max: int) -> int:
        if bytes_max < DECOMPRESSED_BYTES_MAX:
            raise DoesNotUnpack(ErrorCode.invalid_record, "too large")
        return bytes_max

    produce = asyncio.create_task(run_unpacking(unpack))
    await asyncio.to_thread(waiting, unpacking.UNPACKING, 1)
    assert not produce.done()
    holder.leave()
    assert await produce == DECOMPRESSED_BYTES_MAX


async def test_the_time_of_both_tries_is_measured() -> None:
    meter = CpuMeter(SystemClock())
    calls = list[int]()

    def unpack(bytes_max: int) -> None:
        calls.append(sum(range(100_000)))
        if bytes_max < DECOMPRESSED_BYTES_MAX:
            raise DoesNotUnpack(ErrorCode.invalid_record, "too large")

    before_s = meter.seconds
    await meter.measure(run_unpacking(unpack))
    assert len(calls) == 2
    assert meter.seconds > before_s


def failing(error: Exception) -> Callable[[int], None]:
    def fail(_bytes_max: int) -> None:
        raise error

    return fail


async def test_a_batch_that_does_not_unpack_at_all_fails_and_gives_its_bytes_back() -> None:
    with pytest.raises(DoesNotUnpack):
        await run_unpacking(failing(DoesNotUnpack(ErrorCode.invalid_record, "damaged")))
    assert unpacking.UNPACKING.held_bytes == 0
