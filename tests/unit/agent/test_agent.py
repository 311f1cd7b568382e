"""How an agent starts: whatever it writes first already carries a time that may be believed, or none."""

import asyncio
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.agent import Agent, notices
from agent.bucket.cluster_identity import claim_bucket
from agent.bucket.disk_reserve import DiskReserves
from agent.config.settings import CliCommand, load_settings
from agent.runtime.clock import SystemClock
from agent.runtime.notices import Notice, NoticeKind
from agent.security import authenticated_connections
from coordinator.codec.codec import decode
from coordinator.commands.commands import Proposal, ReportTime, StartSession
from coordinator.ledger.memory import MemoryLedger
from protocol.limits import CLOCK_SKEW_MS_MAX
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from tests.support.agent.ledger_parts import running_parts
from tests.support.agent.serving_agent import serving_agent
from tests.support.auth.plain_users import plain_user
from tests.support.clients.http_client import ask_http

ROOT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def serving(
    folder: Path,
    ledger: MemoryLedger,
    store: ObjectStore,
    *,
    reserves: DiskReserves | None = None,
    is_time_accepted: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[Agent]:
    """An agent on free ports of this machine that stops as it is asked to."""
    values: dict[str, object] = {
        "listen": ["127.0.0.1:0"],
        "http": "127.0.0.1:0",
        "data-dir": str(folder),
        "store": "memory:",
        **more,
    }
    if is_time_accepted:
        values["accept-time"] = True
    settings = load_settings(CliCommand.RUN, values, environment={})
    async with serving_agent(settings, ledger, store, reserves=reserves) as agent:
        yield agent
        await agent.drain()


async def first_entry(folder: Path, store: ObjectStore) -> Proposal:
    """The first that an agent on this store writes to its ledger."""
    ledger = MemoryLedger()
    async with serving(folder, ledger, store) as agent:
        assert agent.is_ready
    proposal = decode((await ledger.load()).records[0])
    assert isinstance(proposal.command, StartSession)
    return proposal


def store_that_is_off_by(skew_ms: int) -> MemoryStore:
    clock = SystemClock()
    return MemoryStore(now_ms=lambda: clock.now_ms() + skew_ms, has_clock=True)


async def test_the_clock_is_compared_before_the_first_entry_so_that_the_session_begins_with_a_time(
    tmp_path: Path,
) -> None:
    before_ms = SystemClock().now_ms()
    time_ms = (await first_entry(tmp_path, store_that_is_off_by(0))).time_ms
    assert time_ms is not None
    assert before_ms <= time_ms <= SystemClock().now_ms()


async def test_an_agent_whose_clock_is_off_serves_and_proposes_no_time(tmp_path: Path) -> None:
    store = store_that_is_off_by(2 * CLOCK_SKEW_MS_MAX)
    assert (await first_entry(tmp_path, store)).time_ms is None


async def test_an_agent_whose_store_does_not_tell_its_time_serves_and_proposes_none_yet(tmp_path: Path) -> None:
    store = FailingStore(MemoryStore())
    store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.TIME))
    assert (await first_entry(tmp_path, store)).time_ms is None
    assert [fault.operation for fault in store.struck] == [StoreOperation.TIME]


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_s21_a_clock_that_is_far_ahead_of_the_ledger_is_believed_at_a_start_with_accept_time(
    tmp_path: Path, *, is_accepted: bool
) -> None:
    """The ledger's last time is years ago; the store has no clock."""
    ledger, store = MemoryLedger(), MemoryStore()
    await claim_bucket(store, ledger, new_bucket_id="bucket")
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(ReportTime())
        await parts.ledger.close()
    async with serving(tmp_path, ledger, store, is_time_accepted=is_accepted) as agent:
        is_believed, notices_told, clock_told = (
            agent.broker.services.checked_time() is not None,
            agent.notices(),
            agent.status()["clock"],
        )
    assert is_believed == is_accepted
    assert (notices_told == []) == is_accepted
    assert (clock_told == "believed") == is_accepted


async def test_a_disk_that_is_full_is_said_by_the_agent(tmp_path: Path) -> None:
    reserves = DiskReserves(clock=SystemClock())
    reserve = reserves.of(tmp_path)
    async with serving(tmp_path, MemoryLedger(), MemoryStore(), reserves=reserves) as agent:
        before = agent.notices()
        reserve.find_full()
        full, is_ready = agent.notices(), agent.is_ready
    assert (before, is_ready) == ([], True)
    assert [notice.detail.partition(",")[0] for notice in full] == ["the disk is full"]


USED_MORE_AND_MORE = """
import asyncio, sys, tempfile
from dataclasses import replace
from pathlib import Path
from agent.produce.record_validator import check_batches
from coordinator.ledger.memory import MemoryLedger
from iceberg_export.rows.kernels import KERNELS
from protocol.limits import PLAIN_RECORDS_MAX
from storage.memory_store import MemoryStore
from tests.support.records.plain_records import Record, make_batch
from tests.unit.agent.test_agent import serving
from tests.support.records.record_rules import NOW, RULES

async def main():
    batch = memoryview(make_batch([Record(offset=row, timestamp=1_000) for row in range(10_000)]))
    rules = replace(RULES, message_bytes_max=len(batch))
    with tempfile.TemporaryDirectory() as folder:
        await use(Path(folder), batch, rules)

async def use(folder, batch, rules):
    async with serving(folder, MemoryLedger(), MemoryStore()) as agent:
        def loaded():
            return "numba" in sys.modules, b"penstock_kernels_loaded 1.0" in agent.broker.services.metrics.exposition()
        print("idle", *loaded())
        before = check_batches(batch, rules, NOW)
        print("few records", *loaded(), KERNELS.wait())
        for _ in range(PLAIN_RECORDS_MAX // 10_000):
            check_batches(batch, rules, NOW)
        print("many records", KERNELS.wait(), *loaded())
        print("same", check_batches(batch, rules, NOW) == before)

asyncio.run(main())
"""


def test_an_agent_loads_the_compiler_once_it_took_many_records_and_says_the_same_of_them() -> None:
    told = subprocess.run(
        [sys.executable, "-c", USED_MORE_AND_MORE], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert told == ["idle False False", "few records False False False", "many records True True True", "same True"]


def test_what_an_operator_must_act_on_is_a_notice_each_with_its_page() -> None:
    assert notices(disk_text="", clock_text="", damaged_objects_count=0) == []
    assert notices(disk_text="the disk is full", clock_text="the clock is behind", damaged_objects_count=2) == [
        Notice(
            kind=NoticeKind.DISK_FULL,
            detail='the disk is full, no records are accepted: docs/operations/disk.md, "The disk is full"',
        ),
        Notice(
            kind=NoticeKind.CLOCK_NOT_BELIEVED,
            detail='the clock is behind: docs/operations/clock.md, "The clock is wrong, or was set"',
        ),
        Notice(
            kind=NoticeKind.OBJECTS_DAMAGED,
            detail='consumers meet damaged objects (2): docs/operations/damage.md, "A damaged file"',
        ),
    ]


async def test_a_user_who_leaves_the_file_is_out_over_http_without_a_listener_with_sasl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticated_connections, "CREDENTIAL_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(authenticated_connections, "PLAIN_USERS_RELOAD_SECONDS", 0.0)
    users, shown = tmp_path / "users", "Basic " + b64encode(b"alice:w").decode()
    users.write_text(plain_user("alice", "w"))
    store = MemoryStore()
    async with serving(tmp_path / "data", MemoryLedger(), store, more={"plain-users": str(users)}) as agent:

        async def status() -> int:
            return (
                await asyncio.to_thread(ask_http, str(agent.http), "GET", "/api/status", authorization=shown)
            ).status

        assert await status() == 200
        users.write_text("")
        async with asyncio.timeout(10):  # the file is read again every 20 ms
            while await status() != 401:
                pass
