"""Storms of handshakes against a server of this process."""

import asyncio
import json
import ssl
import subprocess
import sys
from pathlib import Path

from benchmarks.measure.tls_handshakes import summed
from tests.support.certificates import PemFiles, TestAuthority
from tools.steps import ROOT


def test_storms_are_summed() -> None:
    lines = ['{"done": 3, "failed": 0, "seconds": 0.5}', '{"done": 2, "failed": 1, "seconds": 1.0}']
    assert summed(lines) == {"done": 5, "failed": 1, "seconds": 1.5}


async def storm(port: int, authority: TestAuthority, client: PemFiles) -> dict[str, float]:
    files = ["--ca", str(authority.ca_path), "--cert", str(client.cert), "--key", str(client.key)]
    words = ["--port", str(port), "--count", "5", "--seconds", "0.01", *files]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.measure.handshake_storm", *words), cwd=ROOT, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    return dict(json.loads(output.splitlines()[0]))


async def test_a_storm_counts_what_the_server_accepts_and_what_it_does_not(tmp_path: Path) -> None:
    authority = TestAuthority(folder=tmp_path)
    (tmp_path / "other").mkdir()
    stranger = TestAuthority(folder=tmp_path / "other")
    server_files = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_files.cert, server_files.key)
    context.load_verify_locations(authority.ca_path)
    context.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        accepted = await storm(port, authority, authority.issue("client", "c@example.org"))
        rejected = await storm(port, authority, stranger.issue("client", "c@example.org"))
    assert (accepted["done"], accepted["failed"]) == (5, 0)
    assert (rejected["done"], rejected["failed"]) == (0, 5)
