"""Many lanes against agents, and the judgement: nothing raised, nobody died, memory is bounded, the audit is clean."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.request import urlopen

from tests.requests.lane import Fault, Lane
from tests.support.processes import Process

LANES = 8
MEMORY_BYTES_MAX = 640 * 1024 * 1024
OPTIONS = {"log-level": "error", "archive-interval-s": "2"}
"""So that every line of the log behind those of the start is an error."""
ERROR_LINE = re.compile(r"Z (ERROR|CRITICAL) |Traceback")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


class SweptAgent(Protocol):
    """A running agent, of a cluster or alone."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def http(self) -> str: ...

    @property
    def process(self) -> Process: ...


def sweep(brokers: Sequence[SweptAgent], *, seed: int, requests: int) -> dict[str, object]:
    """Send `requests` requests, spread over the agents; return counts. Raises `Fault`."""
    began = time.monotonic()
    try:
        lanes = asyncio.run(_run(brokers, seed=seed, requests=requests))
    except Fault as fault:
        raise Fault(f"{fault}\nlog of the agents:\n{_log(brokers)}") from None
    for broker in brokers:
        judge(broker, seed=seed)
    counts = sum((lane.counts for lane in lanes), Counter[str]())
    return {
        "seed": seed,
        "requests": requests,
        "seconds": round(time.monotonic() - began),
        "MiB": max(resident_bytes_max(broker.process.pid) for broker in brokers) >> 20,
        **dict(counts.most_common()),
    }


def judge(broker: SweptAgent, *, seed: int) -> None:
    """An agent behind the sweep. Raises `Fault`."""
    log = broker.process.stderr
    if not broker.process.is_running:
        raise Fault(f"seed {seed}: the agent has ended:\n{log[-4000:]}")
    if ERROR_LINE.search(log):
        raise Fault(f"seed {seed}: the agent has written errors:\n{log[-4000:]}")
    with urlopen(f"http://{broker.http}/metrics", timeout=30) as response:
        metrics = response.read().decode()
    bugs = re.search(r'^penstock_connections_closed_total{reason="bug"} (\S+)', metrics, re.MULTILINE)
    if bugs is not None and float(bugs[1]):
        raise Fault(f"seed {seed}: {bugs[1]} requests met a bug")
    used = resident_bytes_max(broker.process.pid)
    if used > MEMORY_BYTES_MAX:
        raise Fault(f"seed {seed}: the agent took {used >> 20} MiB of memory")


def resident_bytes_max(pid: int) -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


async def _run(brokers: Sequence[SweptAgent], *, seed: int, requests: int) -> list[Lane]:
    log_bytes = {broker.process.log: broker.process.log.stat().st_size for broker in brokers}

    def has_erred() -> bool:
        return any(log.stat().st_size != size for log, size in log_bytes.items())

    ports = [int(broker.bootstrap.rpartition(":")[2]) for broker in brokers]
    lanes = [
        Lane(port=ports[number % len(ports)], number=number, seed=seed, has_erred=has_erred) for number in range(LANES)
    ]
    tasks = [asyncio.create_task(lane.run(-(-requests // LANES))) for lane in lanes]
    try:
        await asyncio.gather(*tasks)
    except Fault as fault:
        # Another lane's request may be to blame: all that are on their way are shown.
        others = "\n".join(f"lane {lane.number}: {lane.recent[-1]}" for lane in lanes if lane.recent)
        raise Fault(f"{fault}\nthe newest requests of all lanes:\n{others}") from None
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        for lane in lanes:
            lane.abort()
    return lanes


def _log(brokers: Sequence[SweptAgent]) -> str:
    return "\n".join(broker.process.stderr[-6000:] for broker in brokers)
