"""Idle brokers, and what is measured of Penstock alone: object requests, its state, its start with a cold page cache.

Rule: as in `benchmarks.measure.rows`, a measurement leaves its peer quiet and without the topic it made.
"""

import contextlib
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.measure import process_usage
from benchmarks.measure.exposition import STORE_REQUESTS, increase, scrape, total
from benchmarks.measure.rows import Bench, produce, topic_of
from benchmarks.peers.brokers import Peer, PenstockPeer
from protocol.limits import ARCHIVE_AGE_MS_DEFAULT, ARCHIVE_BYTES_DEFAULT
from tools.steps import ROOT

DEFAULT_FLUSH = ("--flush-interval-ms", "250")
DEFAULT_PASSES = (
    *("--archive-interval-s", str(ARCHIVE_AGE_MS_DEFAULT // 1000), "--archive-bytes", str(ARCHIVE_BYTES_DEFAULT)),
)
READERS = 3
METADATA_ROUNDS = 3
METADATA_SECONDS_MAX = 300
NO_WORK_SECONDS = 6.0
"""Longer than the pause between looks at whether a snapshot is due."""
NO_WORK_SECONDS_MAX = 120.0
PACKAGES = ("agent", "coordinator", "iceberg_export", "protocol", "storage", "txn")
GIB = 1 << 30


def object_requests(bench: Bench, peer: PenstockPeer, case: Case) -> dict[str, float]:
    """PUTs of producing at the case's rate with the default flush interval; GETs of readers, one after the other, that
    come after a restart, when nothing is in memory.
    """
    with peer.restarted_with(DEFAULT_FLUSH), topic_of(peer, case.partitions) as topic:
        records = bench.scale.records(case, peer.name)
        before = scrape(peer.http)
        produced = bench.tools.produce(peer.bootstrap, topic, case, records=records, warm_up_records=records // 5)
        after = scrape(peer.http)
        gib = increase(before, after, "penstock_produce_bytes_total") / GIB
        objects = increase(before, after, "penstock_intake_objects_total")
        peer.restart()
        start = scrape(peer.http)
        bench.tools.consume(peer.bootstrap, [(topic, records)] * READERS, peer.cpu_seconds)
        gets = increase(start, scrape(peer.http), STORE_REQUESTS, "get")
        return {
            "puts_per_gib": increase(before, after, STORE_REQUESTS, "put") / gib,
            "gets_per_object": gets / objects,
            "mb_per_s": produced["mb_per_s"],
        }


def sustained(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    """Produces for minutes. Penstock's archive passes are as frequent as by default meanwhile. What they release is
    deleted earlier than by default, for the sake of the disk."""
    if not isinstance(peer, PenstockPeer):
        return produce(bench, peer, case)
    with peer.restarted_with(DEFAULT_PASSES):
        before = scrape(peer.http)
        figures = produce(bench, peer, case)
        after = scrape(peer.http)
        produced = increase(before, after, "penstock_produce_bytes_total")
        return figures | {"archived_share": increase(before, after, "penstock_archive_bytes_total") / produced}


def idle(bench: Bench, peer: Peer) -> dict[str, float]:
    """Start-up with what is there, then CPU, memory and object requests of a broker with no client."""
    peer.restart()
    peer.settle()
    figures = {"start_s": peer.start_seconds}
    if not isinstance(peer, PenstockPeer):
        return figures | _idle_usage(bench, peer)
    _wait_for_no_work(peer)
    before = scrape(peer.http)
    figures |= _idle_usage(bench, peer)
    return figures | {"object_requests": increase(before, scrape(peer.http), STORE_REQUESTS)}


def _idle_usage(bench: Bench, peer: Peer) -> dict[str, float]:
    before, began = peer.cpu_seconds(), time.monotonic()
    time.sleep(bench.scale.idle_seconds)
    share = (peer.cpu_seconds() - before) / (time.monotonic() - began)
    return {"cpu_percent": share * 100, "rss_mib": process_usage.memory_mib(peer.pid)}


def _wait_for_no_work(peer: PenstockPeer) -> None:
    """Waits until nothing released is left to be deleted, and no object was asked for in a while."""
    deadline = time.monotonic() + NO_WORK_SECONDS_MAX
    requests, since = -1.0, time.monotonic()
    while time.monotonic() < min(deadline, since + NO_WORK_SECONDS):
        samples = scrape(peer.http)
        found = total(samples, STORE_REQUESTS)
        if found != requests or total(samples, "penstock_objects_pending_deletion"):
            requests, since = found, time.monotonic()
        time.sleep(0.5)


def metadata(bench: Bench) -> dict[str, float]:
    """Apply and load, in a process of its own; of the two sorts of producers the slower one."""
    words = ["--chunks", str(bench.scale.chunks), "--rounds", str(METADATA_ROUNDS)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.micro.apply", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=METADATA_SECONDS_MAX,
        check=True,
    )
    return read_metadata(done.stdout.splitlines())


def read_metadata(lines: Iterable[str]) -> dict[str, float]:
    """Figures of micro_apply's JSON lines. `load_s` is for a million chunks, with the check of their digest."""
    rows = [json.loads(line) for line in lines]
    (state,) = (row for row in rows if row["what"] == "snapshot")
    return {
        "chunks_per_s": min(row["chunks_per_s"] for row in rows if row["what"] == "apply"),
        "load_s": (state["decode_s"] + state["digest_s"]) * 1_000_000 / state["chunks"],
        "memory_bytes_per_chunk": state["memory_bytes_per_chunk"],
    }


def cold_start(peer: PenstockPeer) -> dict[str, float]:
    """Start-up with the program and its data read from the disk. No other process may have the program loaded."""
    peer.stop()
    folders = [Path(sys.prefix), Path(sysconfig.get_paths()["stdlib"]), peer.folder]
    for folder in (*folders, *(ROOT / name for name in PACKAGES)):
        forget_files(folder)
    peer.start()
    peer.settle()
    return {"cold_start_s": peer.start_seconds}


def forget_files(folder: Path) -> None:
    """Asks the system to drop a folder's files from its page cache; those that a process maps stay in it."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
