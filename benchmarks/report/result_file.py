"""A result's file: what was run, on what sort of machine, and every row; written after each row, and read again.

Rule: it names no path, no address and no host, so that a result may be committed and compared.
"""

import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.runtime.version import VERSION
from benchmarks.cases import PeerName, cases
from benchmarks.report.results import RowResult, read_row
from benchmarks.schedule import Scale

RESULTS = Path(__file__).parents[1] / "results"
KAFKA_VERSION = "4.3.1"
_PROCESSOR_NAME = re.compile(r"^model name\s*: (.+)$", re.MULTILINE)


class UnreadableResult(Exception):
    """A file is no result, or not there. The message says which."""


def place(name: str) -> Path:
    return RESULTS / f"{name}.json"


def write(name: str, rows: Sequence[RowResult], scale: Scale, round_count: int, load_before: Sequence[float]) -> None:
    """Writes all rows that there are; a run that is cut off leaves a whole file with its figures."""
    result = {
        "penstock": VERSION,
        "kafka": KAFKA_VERSION,
        "finished": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": machine() | {"load_before": load_before, "load_now": os.getloadavg()},
        "rounds": round_count,
        "scale": asdict(scale),
        "rows": [row.as_json() for row in rows],
    }
    RESULTS.mkdir(exist_ok=True)
    whole = place(name).with_suffix(".part")
    whole.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    whole.replace(place(name))


def read(name: str) -> list[RowResult]:
    """The rows of a result that are still measured, failed ones too. Raises `UnreadableResult`."""
    known = {case.plain_name: case for case in cases()}
    with _readable(name) as result:
        return [row for row in (read_row(found, known) for found in result["rows"]) if row is not None]


def source(name: str) -> str:
    """What a result compares, when and where it was measured, in a line. Raises `UnreadableResult`."""
    with _readable(name) as result:
        day, cores, rounds = str(result["finished"])[:10], result["machine"]["cores"], result["rounds"]
        has_kafka = any(PeerName.KAFKA.value in row["rounds"] for row in result["rows"])
        beside = f" and Apache Kafka {result['kafka']}" if has_kafka else ""
        return f"{name}, {day}: Penstock {result['penstock']}{beside} on {cores} cores, medians of {rounds} rounds"


@contextmanager
def _readable(name: str) -> Iterator[Any]:
    """A result's JSON; what is wrong with it in the body, too, is `UnreadableResult`."""
    try:
        yield json.loads(place(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableResult(f"there is no readable result {name!r} in benchmarks/results: {error!r}") from error


def machine() -> dict[str, object]:
    """What sort of machine this is, without its name."""
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "processor_name": _processor_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
    }


def _processor_name() -> str:
    try:
        found = _PROCESSOR_NAME.search(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[1] if found else ""
