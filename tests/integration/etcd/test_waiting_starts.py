"""An agent that starts before its ledger, bucket or name are there: its probes, its end by SIGTERM, and its log."""

import json
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.support.ports import free_port
from tests.support.processes import START_SECONDS_MAX, Process, provided
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, READY, Minio, MinioProcess

STOP_SECONDS_MAX = 5.0
LEDGER = "not ready: the start waits for the ledger (etcd)\n"
STORE = "not ready: the start waits for the object store\n"
NAME = "not ready: the start waits for the end of another session under this agent's name\n"


class WaitingAgent:
    """A process that may not serve yet, and its HTTP port."""

    def __init__(self, folder: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        command = [str(provided(PENSTOCK)), "agent", "--name", "a", "--listen", "127.0.0.1:0", "--http", self.http]
        self.process = Process([*command, "--log-format", "json", *options], folder, name="agent", env=env)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 while nothing listens."""
        try:
            with urlopen(f"http://{self.http}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except (URLError, ConnectionError) as error:
            return 0, str(error)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        self.process.wait_until(is_so, what, seconds_max=START_SECONDS_MAX)

    def waited_s(self, need: str) -> float:
        pattern = rf'^penstock_start_waits_seconds{{for="{need}"}} (\S+)$'
        match = re.search(pattern, self.get("/metrics")[1], re.MULTILINE)
        assert match is not None
        return float(match[1])

    def end(self) -> None:
        """SIGTERM: it ends at once and well, and all that it logged is JSON."""
        began_s = time.monotonic()
        assert self.process.stop() == 0
        assert time.monotonic() - began_s < STOP_SECONDS_MAX
        for line in self.process.stderr.splitlines():
            assert isinstance(json.loads(line), dict)


def test_an_agent_without_etcd_and_bucket_is_live_and_serves_once_they_are_there(tmp_path: Path) -> None:
    etcd, minio = Etcd(tmp_path / "etcd"), MinioProcess(tmp_path / "minio")
    bucket = minio.server.make_bucket("bucket")
    options = ["--ledger", f"etcd://{etcd.endpoints[0]}/c", "--store", f"s3://{bucket}/data", "--zone", "z1"]
    agent = WaitingAgent(tmp_path, *options, env=minio.server.settings)
    with agent.process:
        agent.until(lambda: agent.get("/live") == (HTTPStatus.OK, "live\n"), "/live")
        assert agent.get("/ready") == (HTTPStatus.SERVICE_UNAVAILABLE, LEDGER)
        assert agent.get("/api/status")[0] == HTTPStatus.SERVICE_UNAVAILABLE
        assert agent.waited_s("ledger") > agent.waited_s("store") == 0
        assert "penstock_ready 0.0" in agent.get("/metrics")[1]
        agent.until(lambda: "the ledger (etcd) does not answer" in agent.process.stderr, "the log")
        with etcd:
            agent.until(lambda: agent.get("/ready")[1] == STORE, "it waits for the store")
            assert agent.waited_s("store") > agent.waited_s("ledger") == 0
            with minio.start() as running:
                minio.wait(running)
                agent.until(lambda: agent.get("/ready") == (HTTPStatus.OK, "ready\n"), "/ready")
                agent.until(lambda: READY.search(agent.process.stdout) is not None, "the ready line")
                assert agent.waited_s("ledger") == agent.waited_s("store") == agent.waited_s("name") == 0
                metrics = agent.get("/metrics")[1]
                agent.until(lambda: json.loads(agent.get("/api/status")[1])["maintenance_leader"] == "a", "a leader")
                status = json.loads(agent.get("/api/status")[1])
                agent.end()
    assert "penstock_ready 1.0" in metrics
    assert re.search(
        r'^penstock_build_info{python="3\.\d+\.\d+",rules="\d+",version="[^"]+",zone="z1"} 1\.0$', metrics, re.MULTILINE
    )
    assert re.search(r"^penstock_rules_version [1-9]\d*\.0$", metrics, re.MULTILINE)
    assert (status["zone"], status["uptime_s"] >= 0) == ("z1", True)
    (report,) = [line for line in map(json.loads, agent.process.stderr.splitlines()) if "durability" in line]
    assert (report["message"], report["agent"], report["http"]) == ("the agent serves", "a", f"http://{agent.http}")


@pytest.mark.parametrize(("missing", "line"), [("ledger", LEDGER), ("store", STORE)])
def test_sigterm_ends_a_start_that_waits_at_once(tmp_path: Path, missing: str, line: str) -> None:
    nothing = f"127.0.0.1:{free_port()}"
    if missing == "ledger":
        options = ["--ledger", f"etcd://{nothing}/c", "--store", f"file://{tmp_path}/store"]
    else:
        options = ["--ledger", f"sqlite://{tmp_path}/ledger.sqlite", "--store", "s3://bucket/data"]
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    env = {**keys, "AWS_ENDPOINT_URL": f"http://{nothing}", "AWS_ALLOW_HTTP": "true"}
    agent = WaitingAgent(tmp_path, *options, env=env)
    with agent.process:
        agent.until(lambda: agent.get("/ready")[1] == line, line)
        agent.end()


def test_an_agent_whose_name_is_held_says_so_and_ends_at_once(tmp_path: Path, etcd: Etcd, minio: Minio) -> None:
    store = f"s3://{minio.make_bucket('held-name')}/data"
    options = ["--ledger", f"etcd://{etcd.endpoints[0]}/held-name", "--store", store]
    first = WaitingAgent(tmp_path / "first", *options, env=minio.settings)
    with first.process:
        first.until(lambda: first.get("/ready")[0] == HTTPStatus.OK, "the first agent")
        second = WaitingAgent(tmp_path / "second", *options, env=minio.settings)
        with second.process:
            second.until(lambda: second.get("/ready")[1] == NAME, "the second agent waits")
            assert second.waited_s("name") > 0
            second.end()
        first.end()


def test_a_start_that_fails_says_why_in_json(tmp_path: Path) -> None:
    agent = WaitingAgent(tmp_path, "--ledger", "memory:", "--store", f"file://{tmp_path}/agent.log")
    with agent.process:
        assert agent.process.wait_ended(seconds_max=START_SECONDS_MAX) == 1
        lines = [json.loads(line) for line in agent.process.stderr.splitlines()]
    assert (lines[-1]["level"], lines[-1]["message"]) == ("critical", "the agent ends with an error")
    assert "agent.log: Not a directory" in lines[-1]["reason"]
