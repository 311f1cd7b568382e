"""Which failures are tried again, and which end the agent."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext

import pytest

from agent.runtime.supervisor import HEALTHY_SECONDS, Supervisor, begin_in, contain
from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable
from protocol.types import Milliseconds
from storage.object_store import StoreMisconfigured, StoreUnavailable


class ManualClock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> Milliseconds:
        return Milliseconds(int(self.seconds * 1000))

    def monotonic_s(self) -> float:
        return self.seconds

    def uptime_s(self) -> float:
        """Counted from another moment than `monotonic_s`."""
        return self.seconds + 5_000.0

    def thread_cpu_s(self) -> float:
        """All that passes is work; counted from another moment than `monotonic_s`."""
        return self.seconds - 900.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class EvenIds:
    def new_uuid(self) -> bytes:
        return bytes(16)

    def new_cluster_id(self) -> str:
        return "cluster"

    def jitter(self) -> float:
        return 0.5


class Failing:
    """Raises the given errors, one a run, then returns."""

    def __init__(self, *errors: BaseException, clock: ManualClock | None = None, seconds: float = 0) -> None:
        self.errors = list(errors)
        self.runs = 0
        self.clock = clock
        self.seconds = seconds

    async def __call__(self) -> None:
        self.runs += 1
        if self.clock:
            self.clock.seconds += self.seconds
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def supervisor(clock: ManualClock) -> Supervisor:
    return Supervisor(clock=clock, ids=EvenIds())


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), StoreMisconfigured("no"), LedgerUnavailable("away"), OSError("full"), TimeoutError()],
)
async def test_what_the_environment_did_is_tried_again(supervisor: Supervisor, error: Exception) -> None:
    task = Failing(error)
    async with supervisor:
        supervisor.start("archiver", task)
    assert task.runs == 2
    assert supervisor.restarts_count == 1


async def test_pauses_grow_up_to_a_bound(supervisor: Supervisor, clock: ManualClock) -> None:
    async with supervisor:
        supervisor.start("archiver", Failing(*[OSError("full")] * 8))
    assert clock.slept == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_a_task_that_was_healthy_starts_with_the_first_pause(supervisor: Supervisor, clock: ManualClock) -> None:
    async with supervisor:
        supervisor.start("archiver", Failing(*[OSError("full")] * 3, clock=clock, seconds=HEALTHY_SECONDS))
    assert clock.slept == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("error", [AssertionError("bug"), KeyError("bug"), LedgerCorrupt("two truths")])
async def test_a_bug_or_a_contradiction_ends_all_tasks(supervisor: Supervisor, error: Exception) -> None:
    async def broken_agent() -> None:
        async with supervisor:
            supervisor.start("forever", asyncio.Event().wait)
            supervisor.start("broken", Failing(error))

    with pytest.raises(ExceptionGroup) as caught:
        await broken_agent()
    assert caught.value.exceptions == (error,)


async def test_a_task_that_is_not_restarted_ends_the_agent_with_its_first_error(supervisor: Supervisor) -> None:
    with pytest.raises(ExceptionGroup, match="unhandled"):
        async with supervisor:
            supervisor.start("kafka", Failing(OSError("gone")), is_restarted=False)


async def test_tasks_can_be_stopped_by_name_or_all(supervisor: Supervisor) -> None:
    async with supervisor:
        for name in ("a", "b", "c"):
            supervisor.start(name, asyncio.Event().wait)
        await supervisor.stop("a")
        supervisor.start("a", asyncio.Event().wait)
        await supervisor.stop()
        await supervisor.stop()


async def test_a_name_is_taken_while_its_task_runs(supervisor: Supervisor) -> None:
    async with supervisor:
        supervisor.start("a", asyncio.Event().wait)
        with pytest.raises(AssertionError, match="task a is already running"):
            supervisor.start("a", Failing())
        await supervisor.stop()


async def test_in_a_group_that_is_over_or_being_cancelled_nothing_is_begun() -> None:
    tasks = asyncio.TaskGroup()
    runs: list[str] = []
    was_begun: list[bool] = []

    async def work(name: str) -> str:
        runs.append(name)
        return name

    async def live() -> None:
        async with tasks:
            begun = begin_in(tasks, work("at first"))
            assert begun is not None
            assert await begun == "at first"
            tasks.create_task(Failing(LedgerCorrupt("two heads"))())
            try:
                await asyncio.Event().wait()
            finally:
                was_begun.append(begin_in(tasks, work("while it is cancelled")) is not None)

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await live()
    was_begun.append(begin_in(tasks, work("after its end")) is not None)
    assert was_begun == [False, False]
    assert runs == ["at first"]


async def test_a_bug_in_one_clients_work_ends_that_work_alone(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[bool] = []
    await contain(Failing(KeyError("a topic")), lambda: closed.append(True))
    assert closed == [True]
    assert "KeyError: 'a topic'" in caplog.text


async def test_a_ledger_that_contradicts_itself_is_nobodys_own_trouble() -> None:
    with pytest.raises(LedgerCorrupt):
        await contain(Failing(LedgerCorrupt("two heads")), lambda: None)


async def test_outages_are_reported_elsewhere_and_other_failures_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failures = (LedgerUnavailable("away"), StoreUnavailable("away"), StoreMisconfigured("denied"), OSError("full"))
    async with Supervisor(clock=ManualClock(), ids=EvenIds()) as supervisor:
        supervisor.start("garbage_collector", Failing(*failures))
    assert [vars(record)["reason"] for record in caplog.records] == ["StoreMisconfigured: denied", "OSError: full"]
    assert supervisor.restarts_count == len(failures)
