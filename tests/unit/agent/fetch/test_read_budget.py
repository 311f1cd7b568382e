"""Who may read: first come, first served, one always, and nothing is kept by those who gave up."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.wait import FetchWait
from tests.support.agent.ledger_parts import ManualClock


class Readers:
    """Readers that take reservations of a budget of 100 bytes, each as a task, and how far they got."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.budget = ReadBudget(bytes_max=100)
        self.let_in: list[int] = []
        self.reservations: dict[int, Reservation] = {}
        self._tasks = tasks

    async def begin(self, byte_count: int) -> asyncio.Task[None]:
        task = self._tasks.create_task(self._take(byte_count))
        await self.settle()
        return task

    async def end(self, byte_count: int) -> None:
        with self.reservations.pop(byte_count):
            pass
        await self.settle()

    async def settle(self) -> None:
        """Let every task go on as far as it can."""
        for _ in range(3):
            await ManualClock().sleep(0)

    async def _take(self, byte_count: int) -> None:
        self.reservations[byte_count] = await self.budget.take(byte_count)
        self.let_in.append(byte_count)


async def test_who_fits_does_not_wait() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(60)
        await readers.begin(40)
        assert (readers.let_in, readers.budget.bytes_held, readers.budget.waiting_count) == ([60, 40], 100, 0)


async def test_readers_are_let_in_as_they_came_also_where_a_later_one_would_fit_sooner() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        for byte_count in (60, 30, 70, 5, 6):
            await readers.begin(byte_count)
        assert (readers.let_in, readers.budget.waiting_count) == ([60, 30], 3)
        await readers.end(30)
        assert readers.let_in == [60, 30]
        await readers.end(60)
        assert readers.let_in == [60, 30, 70, 5, 6]
        for byte_count in (70, 5, 6):
            await readers.end(byte_count)
        assert (readers.budget.bytes_held, readers.budget.waiting_count) == (0, 0)


async def test_one_that_is_larger_than_the_budget_reads_alone() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        for byte_count in (1, 500, 2):
            await readers.begin(byte_count)
        assert readers.let_in == [1]
        await readers.end(1)
        assert readers.let_in == [1, 500]
        await readers.end(500)
        assert readers.let_in == [1, 500, 2]


async def test_what_needs_no_memory_waits_for_nobody() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        for byte_count in (100, 10, 0):
            await readers.begin(byte_count)
        assert readers.let_in == [100, 0]
        await readers.end(100)


async def test_nobody_takes_a_share_at_once_past_those_who_wait() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(90)
        await readers.begin(20)
        assert readers.budget.take_now(5) is None
        await readers.end(90)
        assert readers.budget.take_now(5) is not None


async def test_one_that_gives_up_leaves_its_place_to_the_next() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(60)
        waiting = await readers.begin(70)
        await readers.begin(40)
        waiting.cancel()
        await readers.settle()
        assert (readers.let_in, readers.budget.bytes_held, readers.budget.waiting_count) == ([60, 40], 100, 0)


async def test_one_that_has_given_up_is_passed_over_also_before_it_knows() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(60)
        waiting = await readers.begin(70)
        await readers.begin(80)
        waiting.cancel()
        await readers.end(60)
        assert (readers.let_in, readers.budget.bytes_held, readers.budget.waiting_count) == ([60, 80], 80, 0)


async def test_one_that_gives_up_as_its_turn_comes_gives_its_share_to_the_next() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(60)
        waiting = await readers.begin(70)
        await readers.begin(80)
        with readers.reservations[60]:
            pass
        assert readers.budget.bytes_held == 70
        waiting.cancel()
        await readers.settle()
        assert (readers.let_in, readers.budget.bytes_held, readers.budget.waiting_count) == ([60, 80], 80, 0)


async def test_one_whose_patience_ends_leaves_its_place_to_the_next_and_one_that_was_let_in_keeps_its_share() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(90)
        fetch_wait, unneeded = FetchWait(), FetchWait()
        impatient = tasks.create_task(gives_up(readers.budget, 50, fetch_wait))
        await readers.settle()
        await readers.begin(10)
        assert readers.budget.waiting_count == 2
        fetch_wait.end()
        await readers.settle()
        assert (impatient.result(), readers.let_in, readers.budget.bytes_held) == (True, [90, 10], 100)
        let_in = tasks.create_task(gives_up(readers.budget, 20, unneeded))
        await readers.settle()
        await readers.end(90)
        unneeded.end()
        assert (let_in.result(), readers.budget.bytes_held, readers.budget.waiting_count) == (False, 10, 0)


async def test_one_that_is_cancelled_as_its_patience_ends_gives_back_nothing() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(90)
        fetch_wait = FetchWait()
        impatient = tasks.create_task(gives_up(readers.budget, 50, fetch_wait))
        await readers.settle()
        fetch_wait.end()
        impatient.cancel()
        await readers.settle()
        assert (readers.budget.bytes_held, readers.budget.waiting_count) == (90, 0)


async def gives_up(budget: ReadBudget, byte_count: int, fetch_wait: FetchWait) -> bool:
    """Whether patience ended before the reservation was there, which is given back at once."""
    try:
        with await budget.take(byte_count, fetch_wait):
            return False
    except TimeoutError:
        return True


async def test_a_share_is_given_back_by_a_reader_that_fails() -> None:
    budget = ReadBudget(bytes_max=100)
    with pytest.raises(ValueError, match="damaged"), await budget.take(60):
        raise ValueError("damaged")
    assert budget.bytes_held == 0


async def test_a_share_is_held_until_its_reader_has_left_and_what_it_began_is_read() -> None:
    budget, is_read = ReadBudget(bytes_max=100), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        reservation = await budget.take(60)
        with reservation:
            reservation.hold_for(tasks.create_task(wait_for(is_read)))
        assert budget.bytes_held == 60
        is_read.set()
    assert budget.bytes_held == 0
    async with asyncio.TaskGroup() as tasks:
        with await budget.take(60) as reservation:
            read = tasks.create_task(wait_for(is_read))
            reservation.hold_for(read)
            await read
            assert budget.bytes_held == 60
        assert budget.bytes_held == 0


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def test_what_was_read_beyond_a_share_is_held_too_and_given_back_with_it() -> None:
    budget = ReadBudget(bytes_max=100)
    with await budget.take(60) as reservation:
        reservation.count(50)
        assert budget.bytes_held == 60
        reservation.count(80)
        assert budget.bytes_held == 130
        assert budget.take_now(1) is None
    assert budget.bytes_held == 0


async def test_a_share_has_room_for_more_while_that_fits_and_nobody_waits() -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks)
        await readers.begin(60)
        reservation = readers.reservations[60]
        assert reservation.has_room_for(100)
        assert not reservation.has_room_for(101)
        reservation.count(50)
        assert reservation.has_room_for(50)
        await readers.begin(41)
        assert reservation.has_room_for(10)
        assert not reservation.has_room_for(11)
        await readers.end(60)


@dataclass(eq=False, slots=True)
class Reader:
    """One that asks for a reservation, and reads until the test ends it; what it began may go on beyond that."""

    byte_count: int
    end: asyncio.Event = field(default_factory=asyncio.Event)
    reservation: Reservation | None = None
    task: asyncio.Task[None] | None = None
    begun: list[asyncio.Task[None]] = field(default_factory=list)
    is_read: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, budget: ReadBudget) -> None:
        with await budget.take(self.byte_count) as self.reservation:
            await self.end.wait()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Begin a read of its own under the reservation, if it has one."""
        if self.is_reading and self.reservation is not None:
            self.begun.append(tasks.create_task(wait_for(self.is_read)))
            self.reservation.hold_for(self.begun[-1])

    @property
    def is_reading(self) -> bool:
        return self.reservation is not None and self.task is not None and not self.task.done()

    @property
    def holds(self) -> bool:
        return self.is_reading or not all(read.done() for read in self.begun)


async def run_steps(steps: list[tuple[str, int]]) -> None:
    """Readers come, end and give up in any order, several between two turns of the loop."""
    budget, readers = ReadBudget(bytes_max=100), list[Reader]()
    async with asyncio.TaskGroup() as tasks:
        for step, number in steps:
            match step:
                case "come":
                    reader = Reader(number)
                    reader.task = tasks.create_task(reader.read(budget))
                    readers.append(reader)
                case "end" if readers:
                    readers[number % len(readers)].end.set()
                case "begin" if readers:
                    readers[number % len(readers)].begin(tasks)
                case "read" if readers:
                    readers[number % len(readers)].is_read.set()
                case "give up" if readers:
                    task = readers[number % len(readers)].task
                    assert task is not None
                    task.cancel()
                case "turn":
                    await ManualClock().sleep(0)
            holding = [reader for reader in readers if reader.holds]
            assert sum(reader.byte_count for reader in holding) <= budget.bytes_held
            assert budget.bytes_held <= 100 or len([reader for reader in holding if reader.byte_count > 0]) <= 1
        for reader in readers:
            reader.end.set()
            reader.is_read.set()
    assert (budget.bytes_held, budget.waiting_count) == (0, 0)
    assert all(
        reader.reservation is not None or (reader.task is not None and reader.task.cancelled()) for reader in readers
    )


STEPS = st.tuples(
    st.sampled_from(["come", "come", "begin", "read", "end", "give up", "turn", "turn"]), st.integers(0, 120)
)


@given(st.lists(STEPS, max_size=60))
def test_whatever_readers_do_the_bound_holds_and_nothing_is_left_held_or_waiting(steps: list[tuple[str, int]]) -> None:
    asyncio.run(run_steps(steps))
