"""Checks of intake objects that the ledger puts: the same as those of the store's own puts."""

import asyncio

import pytest

from agent.bucket.cluster_file import CLUSTER_KEY
from agent.bucket.confirmation import BucketConfirmation, BucketNotOurs
from agent.bucket.intake_admission import IntakeAdmission
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerIdentity
from protocol.limits import DISK_CHECK_INTERVAL_S
from storage.memory_store import MemoryStore
from storage.object_store import StoreFull
from tests.support.agent.ledger_parts import ManualClock

MINE = LedgerIdentity(cluster_id="c", incarnation=1, bucket_id="b")


async def no_sleep(_seconds: float) -> None:
    """Time does not matter here."""


async def test_s22_nothing_is_admitted_where_the_bucket_is_not_the_cluster_s() -> None:
    confirmation = BucketConfirmation(store=MemoryStore(), identity=MINE, clock=ManualClock(), metrics=Metrics())
    admission = IntakeAdmission(confirmation, is_full=lambda: False, sleep=no_sleep)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(confirmation.run())
        with pytest.raises(BucketNotOurs, match=CLUSTER_KEY):
            await admission("intake/a")
        running.cancel()


async def test_on_a_full_disk_an_intake_is_rejected_after_a_second() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    confirmation = BucketConfirmation(store=MemoryStore(), identity=MINE, clock=ManualClock(), metrics=Metrics())
    admission = IntakeAdmission(confirmation, is_full=lambda: True, sleep=sleep)
    with pytest.raises(StoreFull, match="the disk is full"):
        await admission("intake/a")
    assert slept == [DISK_CHECK_INTERVAL_S]
