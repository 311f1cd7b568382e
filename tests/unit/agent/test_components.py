"""What wiring alone decides, seen from outside an agent that serves."""

import asyncio
import signal
import urllib.request
from pathlib import Path

import pytest

from agent import components
from agent.bucket.disk_reserve import DiskReserves
from agent.components import AgentEndpoints, run_agent
from agent.config.settings import CliCommand, load_settings


def metric(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.timeout(60)
async def test_a_full_disk_is_reported_by_its_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"data-dir": str(tmp_path / "data"), "listen": "127.0.0.1:0", "http": "127.0.0.1:0"}
    settings = load_settings(CliCommand.RUN, values, config_path=None)
    for name in ("pass_over_what_lives", "collect_rarely"):  # of the whole process, which other tests share
        monkeypatch.setattr(components, name, lambda: None)
    serving: asyncio.Future[AgentEndpoints] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run_agent(settings, serving.set_result))
    try:
        async with asyncio.timeout(30):
            url = f"http://{(await serving).http}/metrics"

        async def told() -> float:
            answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
            return metric(answer.decode(), "penstock_disk_full")

        assert await told() == 0
        monkeypatch.setattr(DiskReserves, "is_full", property(lambda _: True))
        assert await told() == 1
    finally:
        monkeypatch.undo()
        if serving.done():  # it listens for the signal then, and closes what it opened
            signal.raise_signal(signal.SIGTERM)
        else:
            running.cancel()
        await asyncio.wait([running], timeout=30)
