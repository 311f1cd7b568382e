"""The commands against a running broker, and against its folder when it has stopped."""

import json
import subprocess
from pathlib import Path

from tests.services import PENSTOCK, PenstockFactory

SECONDS_MAX = 60


def run(*arguments: str | Path, server: str, stdin: str = "") -> str:
    done = subprocess.run(
        [PENSTOCK, *arguments],
        env={"PENSTOCK_SERVER": server, "PATH": ""},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_topic_from_its_creation_to_its_archive_and_its_end(penstock: PenstockFactory) -> None:
    broker = penstock()

    def ask(*arguments: str | Path, stdin: str = "") -> str:
        return run(*arguments, server=broker.http, stdin=stdin)

    ask("topics", "create", "orders", "--partitions", "3", "--config", "compression.type=producer")
    ask("produce", "orders", "--key-separator", "=", "--header", "from=test", stdin="a=1\nb=ü\nc=\n")
    assert sorted(ask("consume", "orders", "--keys").splitlines()) == ["a\t1", "b\tü", "c\t"]
    assert json.loads(ask("topics", "list", "--json"))[0]["records"] == 3
    assert "compression.type=producer" in ask("topics", "describe", "orders")
    before = sorted(ask("consume", "orders", "--json").splitlines())
    (done,) = json.loads(ask("archive", "orders", "--wait", "--json"))["passes"]
    assert (done["topic"], done["records"]) == ("orders", 3)
    assert sorted(ask("consume", "orders", "--json").splitlines()) == before
    assert json.loads(before[0])["headers"] == [["from", "test"]]
    assert "parquet" in ask("inspect", "objects")
    assert json.loads(ask("inspect", "object", done["objects"][0], "--json"))["rows"] == 3
    assert "ReplaceChunks" in ask("inspect", "ledger")
    assert ask("consume", "orders", "--from", "2099-01-01") == ""
    ask("topics", "delete", "orders", "--yes")
    assert json.loads(ask("topics", "list", "--json")) == []


def test_the_folder_of_a_broker_that_has_stopped_can_be_read(penstock: PenstockFactory) -> None:
    broker = penstock()
    run("produce", "orders", "--value", "one", server=broker.http)
    # The ledger's file is copied, so a broker that still runs is not disturbed either.
    shown = json.loads(run("inspect", "chunks", "orders", "--data-dir", broker.data, "--json", server="-"))
    (chunk,) = shown["chunks"]
    assert (chunk["offset_first"], chunk["offset_end"]) == (0, 1)
    shown = json.loads(run("inspect", "object", chunk["object"], "--data-dir", broker.data, "--json", server="-"))
    assert shown["chunks"][0]["records"] == 1
