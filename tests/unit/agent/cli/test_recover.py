"""`penstock recover --dry-run` over the folder of a broker whose packs are damaged."""

import asyncio
import json
import os
from pathlib import Path

from pyarrow import fs
from typer.testing import CliRunner

from agent.cli.failure import EXIT_UNDECIDED
from agent.cli.main import app
from agent.cli.recover import loss_error
from coordinator.ledger.sqlite import SqliteLedger
from protocol.types import ObjectNumber, SessionId
from storage.decorators.routed import RoutedStore
from storage.embedded.local_store import INCOMPLETE_FOLDER, PACKS_FOLDER, LocalStore
from storage.embedded.pack_store import PackStore
from storage.refs import INTAKE_PREFIX, intake_key
from tests.support.agent.recovery_clusters import lived
from tests.support.packs.pack_files import live_objects


async def _live(folder: Path) -> None:
    times = iter(range(1_700_000_000_000, 1_800_000_000_000, 1_000))
    packs = PackStore(folder / PACKS_FOLDER, now_ms=lambda: next(times), new_nonce=lambda: os.urandom(16))
    store = RoutedStore(INTAKE_PREFIX, packs, LocalStore(folder))
    await lived(store)
    await store.close()


def test_s9_an_object_whose_header_is_damaged_is_no_silent_loss(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    asyncio.run(_live(folder))
    (pack,) = (folder / PACKS_FOLDER).iterdir()
    bucket = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    hit = live_objects(bucket, {f"{PACKS_FOLDER}/{pack.name}"})[intake_key(SessionId(1), ObjectNumber(1))]
    content = bytearray(pack.read_bytes())
    content[hit.record_first + 8] ^= 1
    pack.write_bytes(content)
    command = ["recover", "--data-dir", str(tmp_path), "--dry-run", "--force", "--json"]
    result = CliRunner().invoke(app, command, env={"PENSTOCK_LEDGER": None})
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    ((damage),) = told["damaged"]
    assert damage["object"] == str(pack)
    assert "no readable object" in damage["reason"]
    assert told["intake_objects_committed"] == 1


def test_what_only_looks_leaves_the_store_as_it_is(tmp_path: Path) -> None:
    """After a crash, on a disk of its own for the store, whose reserve lies in a folder that a start empties."""
    folder = tmp_path / "store"
    folder.mkdir()
    asyncio.run(_live(folder))
    asyncio.run(_new_ledger(tmp_path / "ledger.sqlite"))
    (pack,) = (folder / PACKS_FOLDER).iterdir()
    pack.write_bytes(pack.read_bytes()[:-50])
    (folder / INCOMPLETE_FOLDER / "reserve").write_bytes(b"room")
    before = _files(folder)
    for command in (["recover", "--dry-run", "--force"], ["audit"], ["audit", "--deep"]):
        result = CliRunner().invoke(app, [*command, "--data-dir", str(tmp_path), "--json"])
        assert json.loads(result.stdout), result.output
        assert _files(folder) == before, command
    CliRunner().invoke(app, ["audit", "--repair", "--data-dir", str(tmp_path), "--json"])
    assert _files(folder) != before


def test_a_loss_that_is_not_accepted_is_no_failure_that_a_job_repeats() -> None:
    error = loss_error({"is_carried_out": False}, is_dry_run=False)
    assert error is not None
    assert error.exit_code == EXIT_UNDECIDED == 3
    assert "add --accept-loss (recover.acceptLoss=true of the chart)" in str(error)
    assert loss_error({"is_carried_out": True}, is_dry_run=False) is None
    assert loss_error({"is_carried_out": False}, is_dry_run=True) is None


async def _new_ledger(path: Path) -> None:
    ledger = await SqliteLedger.open(path, new_cluster_id="mine")
    await ledger.close()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
