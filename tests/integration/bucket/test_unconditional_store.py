"""Against a server that ignores If-None-Match nothing starts, and the doctor names it (safety rule S9)."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.services.local_services import PENSTOCK
from tests.support.services.unconditional_s3 import UnconditionalS3, unconditional_s3

NAMED = b'{"cluster_id":"theirs","incarnation":1,"format_version":1,"bucket_id":"theirs"}'


def done(server: UnconditionalS3, folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """The command's end, on one bucket of the server and a ledger of its own."""
    places = ["--store", "s3://bucket/p", "--data-dir", str(folder)]
    return subprocess.run(
        [PENSTOCK, *command, *places],
        env={**os.environ, **server.settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_s9_a_store_that_ignores_conditions_is_refused_before_a_bucket_is_claimed(tmp_path: Path, command: str) -> None:
    with unconditional_s3() as server:
        found = done(server, tmp_path, command, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        assert "bucket/p/cluster.json" not in server.objects
    assert_refused(found)


def test_s9_the_doctor_finds_it_in_a_bucket_that_is_claimed(tmp_path: Path) -> None:
    with unconditional_s3() as server:
        server.objects["bucket/p/cluster.json"] = NAMED
        found = done(server, tmp_path, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        assert server.objects == {"bucket/p/cluster.json": NAMED}
    assert_refused(found)


def test_s9_a_second_ledger_does_not_claim_such_a_bucket(tmp_path: Path) -> None:
    """The bucket is asked first: a new ledger has no business in one that names a cluster."""
    with unconditional_s3() as server:
        server.objects["bucket/p/cluster.json"] = NAMED
        found = done(server, tmp_path, "run", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        assert server.objects == {"bucket/p/cluster.json": NAMED}
    assert found.returncode == 1
    assert "there is no ledger" in found.stderr


def assert_refused(found: "subprocess.CompletedProcess[str]") -> None:
    assert found.returncode == 1
    output = found.stdout + found.stderr
    assert "ignores If-None-Match" in output
    assert "The store ignores conditional puts" in output
    assert "Traceback" not in output


def test_s9_a_recovery_on_such_a_store_does_not_begin(tmp_path: Path) -> None:
    with unconditional_s3() as server:
        server.objects["bucket/p/cluster.json"] = NAMED
        found = done(server, tmp_path, "recover", "--force")
        assert server.objects == {"bucket/p/cluster.json": NAMED}
    assert found.returncode == 1
    assert "ignores If-None-Match" in found.stderr
