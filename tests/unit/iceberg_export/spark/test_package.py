"""The archive for a cluster: complete, small, and enough for a process that has nothing else of the project."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyarrow
import pytest

from iceberg_export.spark.package import libraries, main, write_archive
from storage.decorators.routed import RoutedStore
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_store import PackStore
from storage.refs import INTAKE_PREFIX
from tests.support.lake.bucket_fixtures import NOON, MadeLake

JOB = """
import json, sys
sys.path[:0] = sys.argv[1:3]
from iceberg_export.spark.source import PenstockDataSource
import iceberg_export
source = PenstockDataSource({"path": sys.argv[3], "subscribe": "orders", "columns": "partition,offset,value"})
from pyspark.sql.types import StructType
reader = source.reader(StructType())
rows = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
told = [[row["partition"], row["offset"], (row["value"] or b"").decode()] for row in rows]
print(json.dumps({"from": iceberg_export.__file__, "rows": sorted(told), "schema": source.schema()}))
"""
IMPORTS = """
import sys
sys.path[:0] = sys.argv[1:3]
import iceberg_export.jobs.rewrite, iceberg_export.jobs.session, iceberg_export.jobs.verify
import iceberg_export.compaction.writer, iceberg_export.typed.elision.value_elision, iceberg_export.typed.readers
print(iceberg_export.jobs.rewrite.__file__)
"""
"""What the jobs need when they run, too."""


async def make(root: Path) -> MadeLake:
    packs = PackStore(root / PACKS_FOLDER, now_ms=lambda: NOON, new_nonce=lambda: os.urandom(16), is_durable=False)
    store = RoutedStore(INTAKE_PREFIX, packs, LocalStore(root, is_durable=False))
    lake = MadeLake(store, root=f"file://{root}")
    lake.create("orders", 2)
    await lake.produce("orders", [50, 20])
    await lake.archive("orders")
    await lake.produce("orders", [5, 7])
    await lake.publish()
    await store.close()
    return lake


def test_a_process_without_the_checkout_plans_and_reads_with_the_archive_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lake = asyncio.run(make(tmp_path / "store"))
    archive = tmp_path / "penstock-spark.zip"
    write_archive(archive)
    site_packages = Path(pyarrow.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", JOB, archive, site_packages, f"file://{tmp_path / 'store'}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["from"].startswith(str(archive))
    assert told["rows"] == [
        [partition, record.offset, (record.value or b"").decode()] for partition, record in lake.visible("orders")
    ]
    assert told["schema"] == "partition int, offset bigint, value binary"


def test_the_archive_holds_what_is_imported_and_no_more(tmp_path: Path) -> None:
    archive = tmp_path / "out.zip"
    assert main([str(archive)]) == 0
    with ZipFile(archive) as found:
        names = found.namelist()
    assert "iceberg_export/spark/source.py" in names
    assert "protocol/records/kernels.py" in names
    assert "iceberg_export/jobs/rewrite.py" in names
    assert not [name for name in names if name.startswith(("agent/", "coordinator/apply"))]
    before = archive.read_bytes()
    write_archive(archive)
    assert archive.read_bytes() == before
    assert {"numpy", "obstore", "pyarrow"} <= set(libraries())


@pytest.mark.slow
def test_the_archive_is_enough_for_jobs(tmp_path: Path) -> None:
    archive = tmp_path / "penstock-spark.zip"
    write_archive(archive)
    site_packages = Path(pyarrow.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORTS, archive, site_packages],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))


def test_a_wrong_call_says_how_it_is_called() -> None:
    assert main([]) == 2
    assert main(["--help"]) == 2
