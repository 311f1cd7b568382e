"""PassWorker, as real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from agent.config.memory_limit import may_have_worker
from agent.lake.worker import worker
from agent.lake.worker.program import PACKAGES, fingerprint
from agent.lake.worker.worker import PassWorker
from agent.runtime.clock import SystemClock
from agent.runtime.metrics import Metrics
from iceberg_export.rows.executor import LeftToCaller, left_to_caller
from protocol.limits import WORKER_CALL_BYTES_MIN, WORKER_MEMORY_LIMIT_MIN
from protocol.records.records import warm_kernels
from tests.support.agent.server_peers import until
from tests.support.cluster.conditions import wait_until
from tools.steps import ROOT

ROLE = "passes"
SECONDS_MAX = 60.0


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm_kernels()


async def call(workers: PassWorker, work: Callable[[], object], byte_count: int = WORKER_CALL_BYTES_MIN) -> object:
    return await workers.call(ROLE, byte_count, work)


def pid_of(workers: PassWorker) -> int:
    process = workers._process
    assert process is not None
    return process.pid


@asynccontextmanager
async def ready_workers() -> AsyncIterator[PassWorker]:
    """PassWorker whose process for `ROLE` serves calls."""
    workers = PassWorker(clock=SystemClock(), metrics=Metrics())
    await workers.begin()
    try:
        await until_ready(workers)
        yield workers
    finally:
        await workers.close()


async def until_ready(workers: PassWorker) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                await call(workers, os.getpid)
            except LeftToCaller:
                await asyncio.to_thread(threading.Event().wait, 0.05)
            else:
                return


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only its remains."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    return "State:\tZ" in status


class Unreadable:
    """Comes back as an exception."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _raise, ()


def _raise() -> object:
    raise ValueError("it means nothing here")


def mark_and_wait_for(mark: Path) -> None:
    """A call that lasts until `mark` is gone, which is there once it has begun."""
    mark.touch()
    while mark.exists():
        threading.Event().wait(0.01)


def mark_and_sleep(mark: Path) -> None:
    """A call that lasts; `mark` is there once it has begun."""
    mark.touch()
    threading.Event().wait(SECONDS_MAX)


class TestCalls:
    async def test_calls_are_made_in_one_other_process_at_low_priority(self) -> None:
        async with ready_workers() as workers:
            pid = await call(workers, os.getpid)
            assert pid == pid_of(workers) != os.getpid()
            assert await call(workers, partial(os.nice, 0)) == min(os.nice(0) + 10, 19)
            views = [memoryview(bytes([number]) * 9000) for number in range(50)]
            assert await call(workers, partial(list, views)) == views
            with pytest.raises(LeftToCaller, match="does not pay"):
                await call(workers, os.getpid, WORKER_CALL_BYTES_MIN - 1)
            for number in (signal.SIGINT, signal.SIGTERM):  # of a terminal, or of the system, for all processes
                os.kill(pid_of(workers), number)
            assert await call(workers, os.getpid) == pid

    async def test_the_first_call_in_a_while_starts_nothing(self) -> None:
        workers = PassWorker(clock=SystemClock(), metrics=Metrics())
        await workers.begin()
        with pytest.raises(LeftToCaller, match="too little to do"):
            await call(workers, os.getpid)
        assert workers._process is None
        await workers.close()

    async def test_what_raises_cannot_be_sent_or_needs_memory_is_left_and_the_process_stays(self) -> None:
        async with ready_workers() as workers:
            pid = pid_of(workers)
            with pytest.raises(LeftToCaller, match="ZeroDivisionError"):
                await call(workers, partial(divmod, 1, 0))
            with pytest.raises(LeftToCaller, match="cannot be sent"):
                await call(workers, lambda: 1)
            with pytest.raises(LeftToCaller, match="waits for memory"):
                await call(workers, partial(left_to_caller, 1 << 28))
            with pytest.raises(LeftToCaller, match="cannot pickle"):  # its result
                await call(workers, threading.Lock)
            assert await call(workers, os.getpid) == pid

    async def test_while_it_has_a_call_others_are_left_also_where_that_was_given_up(self, tmp_path: Path) -> None:
        async with ready_workers() as workers:
            calling = asyncio.create_task(call(workers, partial(mark_and_wait_for, mark := tmp_path / "begun")))
            await until(mark.exists, SECONDS_MAX)
            calling.cancel()
            with pytest.raises(LeftToCaller, match="another call"):
                await call(workers, os.getpid)
            mark.unlink()
            await until(lambda: not workers._is_busy, SECONDS_MAX)
            assert await call(workers, os.getpid) == pid_of(workers)

    async def test_an_answer_that_cannot_be_read_is_none(self, caplog: pytest.LogCaptureFixture) -> None:
        async with ready_workers() as workers:
            with pytest.raises(LeftToCaller, match="it means nothing here"):
                await call(workers, Unreadable)
        (warning,) = caplog.records
        assert "it means nothing here" in vars(warning)["reason"]


class TestStarts:
    async def test_no_module_of_the_working_directory_takes_the_place_of_another(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "queue.py").write_text("raise SystemExit(3)")
        monkeypatch.chdir(tmp_path)
        async with ready_workers():
            pass

    async def test_one_of_another_program_makes_no_call(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An upgrade in place: what the agent loaded is not what lies there now."""
        workers = PassWorker(clock=SystemClock(), metrics=Metrics())
        monkeypatch.setattr(worker, "fingerprint", lambda: "of before")
        await workers.begin()
        with pytest.raises(LeftToCaller):
            await call(workers, os.getpid)
        async with asyncio.timeout(SECONDS_MAX):
            while not caplog.records:
                with pytest.raises(LeftToCaller):
                    await call(workers, os.getpid)
                await asyncio.to_thread(threading.Event().wait, 0.05)
        assert "restart the agent" in vars(caplog.records[0])["reason"]
        with pytest.raises(LeftToCaller, match="does not pay"):
            await call(workers, os.getpid)
        await workers.close()

    def test_a_fingerprint_is_of_all_modules(self, tmp_path: Path) -> None:
        for package in PACKAGES:
            (tmp_path / package / "room").mkdir(parents=True)
            (tmp_path / package / "room" / "module.py").write_text("x = 1")
        before = fingerprint(tmp_path)
        (tmp_path / "agent" / "room" / "__pycache__").mkdir()
        assert fingerprint(tmp_path) == before
        (tmp_path / "txn" / "room" / "module.py").write_text("x = 2 ")
        assert fingerprint(tmp_path) != before

    async def test_the_kernel_ends_it_before_the_agent(self) -> None:
        async with ready_workers() as workers:
            assert await call(workers, Path("/proc/self/oom_score_adj").read_text) == "1000\n"


class TestEnds:
    async def test_a_process_that_is_killed_leaves_its_call_and_another_one_waits(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with ready_workers() as workers:
            calling = asyncio.create_task(call(workers, partial(mark_and_sleep, mark := tmp_path / "begun")))
            await until(mark.exists, SECONDS_MAX)
            os.kill(pid_of(workers), signal.SIGKILL)
            with pytest.raises(LeftToCaller):
                await calling
            with pytest.raises(LeftToCaller, match="not long ago"):
                await call(workers, os.getpid)
        (warning,) = caplog.records
        assert "give the agent more" in warning.message
        assert "the agent does its work itself" in warning.message
        assert vars(warning)["status"] == -signal.SIGKILL

    async def test_one_that_ended_by_itself_is_started_again_without_a_word(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with ready_workers() as workers:
            before = pid_of(workers)
            with pytest.raises(LeftToCaller):
                await call(workers, partial(os._exit, 0))
            await until_ready(workers)
            assert pid_of(workers) != before
        assert not caplog.records

    async def test_a_closed_one_ends_whatever_it_does(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async with ready_workers() as workers:
            calling = asyncio.create_task(call(workers, partial(mark_and_sleep, mark := tmp_path / "begun")))
            await until(mark.exists, SECONDS_MAX)
            pid = pid_of(workers)
            await workers.close()
            with pytest.raises(LeftToCaller):
                await calling
            await until(partial(has_ended, pid), SECONDS_MAX)
            with pytest.raises(LeftToCaller):
                await call(workers, os.getpid)
        assert not caplog.records

    def test_it_ends_with_an_agent_that_is_killed_while_it_works(self) -> None:
        program = (
            "import asyncio, tests.unit.agent.lake.worker.test_worker as t; t.warm_kernels(); "
            "asyncio.run(t.busy_agent())"
        )
        agent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert agent.stdout is not None
        with agent, agent.stdout:
            pid = int(agent.stdout.readline())
            assert not has_ended(pid)
            agent.kill()
        wait_until(partial(has_ended, pid), "the end of the worker")


async def busy_agent() -> None:
    """A process with a worker at work, whose id it prints."""
    async with ready_workers() as workers:
        print(pid_of(workers), flush=True)
        await call(workers, partial(time.sleep, SECONDS_MAX))


@pytest.mark.parametrize(
    ("limit", "processes", "has_worker"),
    [
        (None, 8, True),
        (WORKER_MEMORY_LIMIT_MIN, 1, True),
        (WORKER_MEMORY_LIMIT_MIN - 1, 1, False),
        (2 * WORKER_MEMORY_LIMIT_MIN, 2, True),
        (2 * WORKER_MEMORY_LIMIT_MIN, 3, False),
    ],
)
def test_agents_with_little_memory_have_none(limit: int | None, processes: int, *, has_worker: bool) -> None:
    assert may_have_worker(limit, processes) is has_worker
