"""An agent's way into etcd by its options, as a process: it gets in, or waits, says why, and comes up when it may."""

import asyncio
import os
from pathlib import Path

import grpc.aio
import pytest
import trustme

from tests.support.processes import START_SECONDS_MAX, Process, provided
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_users import permit, require_password
from tests.support.services.local_services import PENSTOCK, READY


def agent(folder: Path, ledger: str, *options: str, password: str | None = None) -> Process:
    command = [str(provided(PENSTOCK)), "agent", "--ledger", ledger, "--store", f"file://{folder}/store", "--name", "a"]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options]
    env = {} if password is None else {"PENSTOCK_LEDGER_PASSWORD": password}
    return Process(command, folder, name="agent", env=env)


async def until(process: Process, text: str) -> None:
    await asyncio.to_thread(
        process.wait_until, lambda: text in process.stderr, f"{text!r} in the log", seconds_max=START_SECONDS_MAX
    )


async def until_ready(process: Process) -> None:
    await asyncio.to_thread(
        process.wait_until, lambda: READY.search(process.stdout) is not None, "agent", seconds_max=START_SECONDS_MAX
    )


async def test_an_agent_that_is_not_let_in_waits_and_says_why_and_comes_up_when_it_may(tmp_path: Path) -> None:
    with Etcd(tmp_path / "etcd") as etcd:
        ledger = f"etcd://{etcd.endpoints[0]}/c"
        async with grpc.aio.insecure_channel(etcd.endpoints[0]) as channel:
            await require_password(channel, users={"agents": ("s3cret", b"/others/")})
            with agent(tmp_path / "1", ledger, "--ledger-user", "agents", password="wrong") as process:
                await until(process, "check user and password")
                assert process.is_running
            with agent(tmp_path / "2", ledger, "--ledger-user", "agents", password="s3cret") as process:
                await until(process, "may read and write the keys below /penstock/CLUSTER/")
                await permit(channel, role="agents", prefix=b"/penstock/c/")
                await until_ready(process)
                assert "their user may not: etcd lets only role root" in process.stderr


async def test_an_agent_over_tls_with_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("agent.example")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "server-key", "client", "client-key")}
    authority.cert_pem.write_to_path(os.fspath(paths["ca"]))
    for name, issued in (("server", server), ("client", client)):
        issued.cert_chain_pems[0].write_to_path(os.fspath(paths[name]))
        issued.private_key_pem.write_to_path(os.fspath(paths[f"{name}-key"]))
    options = ["--cert-file", str(paths["server"]), "--key-file", str(paths["server-key"])]
    options += ["--client-cert-auth", "--trusted-ca-file", str(paths["ca"])]
    with Etcd(tmp_path / "etcd", options=options) as etcd:
        ledger = f"etcds://{etcd.endpoints[0]}/c"
        with agent(tmp_path, ledger, "--ledger-ca", str(paths["ca"])) as process:
            await until(process, "asks for a client certificate")
        shown = ["--ledger-cert", str(paths["client"]), "--ledger-key", str(paths["client-key"])]
        with agent(tmp_path, ledger, "--ledger-ca", str(paths["ca"]), *shown) as process:
            await until_ready(process)


@pytest.mark.parametrize("option", ["--ledger-ca", "--ledger-password-file"])
def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path, option: str) -> None:
    with agent(tmp_path, "etcd://127.0.0.1:1/c", option, str(tmp_path / "missing")) as process:
        assert process.wait_ended(seconds_max=START_SECONDS_MAX) == 2
        assert f"{option} {tmp_path}/missing cannot be read" in process.stderr
