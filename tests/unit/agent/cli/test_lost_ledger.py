"""A data folder whose ledger is gone, or an empty file, or no file at all: all commands say so, and change nothing."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.main import app
from agent.components import run_agent
from agent.config.settings import CliCommand, load_settings
from coordinator.ledger.file_lock import lock_ledger
from coordinator.ledger.port import LedgerCorrupt, LedgerError, SessionHeld
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_marker import is_marker, write_marker
from storage.embedded.local_store import LocalStore
from tests.support.agent.recovery_clusters import lived
from tests.support.journal.journal_bytes import header
from tests.support.journal.journal_ledgers import an_intake_object, embedded_journal, entry
from tests.support.ledger.operations import append_singly


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    async def live() -> None:
        store = LocalStore(tmp_path / "store")
        await lived(store)
        await store.close()

    asyncio.run(live())
    return tmp_path


def invoke(*command: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(command), env={"PENSTOCK_LEDGER": None})
    return result.exit_code, f"{result.output}{result.exception or ''}"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_locks(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.endswith(".lock")}


@pytest.mark.parametrize("make", [lambda _: None, Path.touch], ids=["no file", "an empty file"])
class TestLost:
    def test_a_start_refuses_and_changes_nothing(self, data_dir: Path, make: Callable[[Path], None]) -> None:
        make(data_dir / "ledger.sqlite")
        before = contents(data_dir)
        values = {"data-dir": str(data_dir), "listen": ["127.0.0.1:0"], "http": "127.0.0.1:0"}
        settings = load_settings(CliCommand.RUN, values, config_path=None)
        for _ in range(2):
            with pytest.raises(ExceptionGroup) as raised:
                asyncio.run(run_agent(settings, lambda _: None))
            (error,) = raised.value.exceptions
            assert isinstance(error, LedgerCorrupt)
            assert re.search(r"there is no ledger .*penstock recover.*nothing was changed", str(error))
            assert contents(data_dir) == before

    def test_what_only_looks_calls_it_missing(self, data_dir: Path, make: Callable[[Path], None]) -> None:
        make(data_dir / "ledger.sqlite")
        before = contents(data_dir)
        place = ("--data-dir", str(data_dir))
        code, output = invoke("recover", "--dry-run", "--force", "--json", *place)
        assert code == 0, output
        assert json.loads(output)["incarnation"] == 2
        code, output = invoke("audit", *place)
        assert (code != 0, "does not exist, or is empty" in output) == (True, True), output
        code, output = invoke("doctor", *place)
        assert "and the bucket belongs to cluster" in " ".join(output.split())
        code, output = invoke("inspect", "state", *place)
        assert code != 0, output
        assert without_locks(contents(data_dir)) == before


def in_journal(data_dir: Path) -> tuple[str, ...]:
    return "--ledger", f"journal://{data_dir}/journal", "--store", f"file://{data_dir}/store"


def start_with_journal(data_dir: Path, kind: type[LedgerError] = LedgerCorrupt) -> LedgerError:
    """The error of an agent's start with a journal."""
    values = {
        "ledger": f"journal://{data_dir}/journal",
        "store": f"file://{data_dir}/store",
        "listen": ["127.0.0.1:0"],
        "http": "127.0.0.1:0",
    }
    settings = load_settings(CliCommand.AGENT, values, config_path=None)
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run_agent(settings, lambda _: None))
    (error,) = raised.value.exceptions
    assert isinstance(error, kind)
    return error


class TestWithJournal:
    @pytest.mark.parametrize("has_marker", [False, True])
    @pytest.mark.parametrize("has_folder", [False, True])
    def test_a_start_without_its_journal_refuses_and_changes_nothing(
        self, data_dir: Path, has_folder: bool, has_marker: bool
    ) -> None:
        if has_folder:
            (data_dir / "journal").mkdir()
        if has_marker:
            write_marker(data_dir / "ledger.sqlite", "c")
        before = contents(data_dir)
        assert "there is no ledger" in str(start_with_journal(data_dir))
        assert contents(data_dir) == before

    @pytest.mark.parametrize("content", [b"", header()], ids=["an empty file", "a header"])
    def test_so_does_one_without_anything_in_it(self, data_dir: Path, content: bytes) -> None:
        (data_dir / "journal").mkdir()
        (data_dir / "journal" / f"{3 << 32:016x}.journal").write_bytes(content)
        before = contents(data_dir)
        assert "there is no ledger" in str(start_with_journal(data_dir))
        for command in (("audit",), ("doctor",)):
            code, output = invoke(*command, *in_journal(data_dir))
            assert code != 0, output
        assert without_locks(contents(data_dir)) == before

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["a pipe", "a folder"])
    def test_what_has_the_name_of_the_former_ledger_is_neither_that_nor_missing(
        self, data_dir: Path, make: Callable[[Path], None]
    ) -> None:
        make(data_dir / "ledger.sqlite")
        assert "no regular file" in str(start_with_journal(data_dir))
        assert not (data_dir / "journal").exists()
        for command in (("recover", "--dry-run", "--force"), ("audit",), ("doctor",), ("recover", "--force")):
            code, output = invoke(*command, *in_journal(data_dir))
            assert (code != 0, "no regular file" in output) == (True, True), output

    def test_a_recovery_that_may_not_begin_leaves_no_ledger(self, data_dir: Path) -> None:
        (data_dir / "store" / "cluster.json").unlink()
        before = contents(data_dir)
        code, output = invoke("recover", "--force", *in_journal(data_dir))
        assert (code != 0, "belongs to no cluster" in output) == (True, True), output
        assert without_locks(contents(data_dir)) == before

    @pytest.mark.parametrize("is_cut_off", [False, True], ids=["nothing of it", "its first start was cut off"])
    def test_before_the_first_start_the_ledger_in_sqlite_is_read(self, data_dir: Path, is_cut_off: bool) -> None:
        async def use() -> None:
            ledger = await SqliteLedger.open(data_dir / "ledger.sqlite", new_cluster_id="another")
            await append_singly(ledger, await ledger.open_session("a"), 1)
            await ledger.close()

        asyncio.run(use())
        if is_cut_off:
            (data_dir / "journal").mkdir()
            (data_dir / "journal" / f"{3 << 32:016x}.journal").write_bytes(header() + bytes(5_000))
        before = contents(data_dir)
        for command in (("audit",), ("audit", "--repair"), ("recover", "--dry-run", "--force"), ("recover", "--force")):
            code, output = invoke(*command, *in_journal(data_dir))
            assert (code != 0, "another" in output) == (True, True), (command, output)
        assert {name: content for name, content in contents(data_dir).items() if "checks" not in name} == before

    def test_a_dry_run_over_a_damaged_journal_reads_the_intake_in_it_and_changes_nothing(self, data_dir: Path) -> None:
        async def use() -> None:
            async with embedded_journal(data_dir / "journal", cluster="mine") as one:
                session = await one.ledger.open_session("a")
                for row in range(3):
                    await one.ledger.append_with(session, entry(row, b"p" * 100), [an_intake_object(f"intake/{row}")])

        asyncio.run(use())
        (file,) = (data_dir / "journal").iterdir()
        file.write_bytes(file.read_bytes().replace(b"ppp", b"ppq", 1))
        before = contents(data_dir)
        code, output = invoke("recover", "--dry-run", "--force", "--json", *in_journal(data_dir))
        assert code == 0, output
        report = json.loads(output)
        assert report["incarnation"] == 2
        assert "intake/0" in str(report["passed_over"]), report
        code, output = invoke("audit", *in_journal(data_dir))
        assert (code, "the journal is damaged" in output) == (1, True), output
        assert without_locks(contents(data_dir)) == before

    @pytest.mark.parametrize("has_bucket", [False, True], ids=["an empty bucket", "the bucket of another cluster"])
    def test_a_ledger_in_sqlite_with_another_bucket_is_not_taken_over(self, data_dir: Path, has_bucket: bool) -> None:
        """A `penstock run` that had a --store, and is started without it: with it the ledger has to be found again."""

        async def use() -> None:
            ledger = await SqliteLedger.open(data_dir / "ledger.sqlite", new_cluster_id="another")
            await append_singly(ledger, await ledger.open_session("a"), 1)
            await ledger.claim_bucket("elsewhere")
            await ledger.close()

        asyncio.run(use())
        if not has_bucket:
            shutil.rmtree(data_dir / "store")
        before = without_locks(contents(data_dir))
        assert "another" in str(start_with_journal(data_dir))
        assert without_locks(contents(data_dir)) == before

    def test_an_older_copy_of_the_ledger_in_sqlite_is_not_taken_over(self, data_dir: Path) -> None:
        async def use() -> None:
            ledger = await SqliteLedger.open(data_dir / "ledger.sqlite", new_cluster_id="mine")
            await append_singly(ledger, await ledger.open_session("a"), 1)
            await ledger.close()

        asyncio.run(use())
        before = without_locks(contents(data_dir))
        assert "an older copy of the cluster's ledger" in str(start_with_journal(data_dir))
        assert without_locks(contents(data_dir)) == before

    def test_a_bucket_elsewhere_does_not_hide_the_ledger_in_the_journal(self, tmp_path: Path) -> None:
        """A `penstock run` that had no --store, and is started with one: it would begin another cluster."""

        async def use() -> None:
            async with embedded_journal(tmp_path / "journal", cluster="mine"):
                write_marker(tmp_path / "ledger.sqlite", "mine")

        asyncio.run(use())
        before = contents(tmp_path / "journal")
        values = {"data-dir": str(tmp_path), "store": f"file://{tmp_path}/elsewhere", "listen": ["127.0.0.1:0"]}
        settings = load_settings(CliCommand.RUN, {**values, "http": "127.0.0.1:0"}, config_path=None)
        with pytest.raises(ExceptionGroup) as raised:
            asyncio.run(run_agent(settings, lambda _: None))
        assert "in the journal beside it" in repr(raised.value.exceptions)
        assert contents(tmp_path / "journal") == before
        assert is_marker(tmp_path / "ledger.sqlite")
        assert not (tmp_path / "elsewhere").exists()

    def test_a_second_agent_names_the_first(self, tmp_path: Path) -> None:
        lock = lock_ledger(tmp_path / "ledger.sqlite")
        error = start_with_journal(tmp_path, SessionHeld)
        lock.release()
        assert f"process {os.getpid()} has the ledger" in str(error)
        assert not (tmp_path / "journal").exists()

    def test_an_audit_beside_its_broker_says_what_to_do(self, data_dir: Path) -> None:
        lock = lock_ledger(data_dir / "ledger.sqlite")
        code, output = invoke("audit", *in_journal(data_dir))
        lock.release()
        assert (code, "or let it do the audit" in output) == (1, True), output


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-wal"])
def test_a_pipe_is_not_waited_for(data_dir: Path, name: str) -> None:
    (data_dir / "ledger.sqlite").write_bytes(b"SQLite format 3")
    (data_dir / name).unlink(missing_ok=True)
    os.mkfifo(data_dir / name)
    for command in (("recover", "--dry-run", "--force"), ("audit",), ("doctor",), ("recover", "--force")):
        code, output = invoke(*command, "--data-dir", str(data_dir))
        assert (code != 0, "no regular file" in output) == (True, True), output
