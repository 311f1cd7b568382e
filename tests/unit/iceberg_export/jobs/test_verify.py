"""Verification of a made bucket that has no file to hand out."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from iceberg_export.jobs.verify import Verification
from storage.embedded.local_store import LocalStore
from tests.support.lake.bucket_fixtures import MadeLake

IDLE_SPARK: Any = SimpleNamespace(defaultParallelism=2, broadcast=lambda told: told)


def test_a_topic_whose_archived_records_were_all_aborted_lacks_nothing(tmp_path: Path) -> None:
    asyncio.run(aborted_topic(tmp_path))
    report = Verification(lambda: IDLE_SPARK, f"file://{tmp_path}", agent=None).table("orders")
    assert (report.problem, report.findings) == ("", [])


async def aborted_topic(folder: Path) -> None:
    made = MadeLake(LocalStore(folder, is_durable=False), root=f"file://{folder}")
    made.create("orders", 1)
    await made.produce_aborted("orders", 0, 30)
    await made.archive("orders")
    await made.publish()
