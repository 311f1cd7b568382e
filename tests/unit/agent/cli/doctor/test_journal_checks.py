"""Doctor beside a broker with a journal: its files, its ledger, its clock, and whether ledger and bucket fit."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.bucket.cluster_identity import claim_bucket
from agent.cli.doctor import clock_checks, journal_checks
from agent.cli.doctor.clock_checks import check_clock
from agent.cli.doctor.identity_checks import check_identity
from agent.cli.doctor.journal_checks import DAMAGES_SHOWN, check_journal
from agent.cli.doctor.ledger_checks import check_ledger
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding, check_machine
from agent.config.settings import CliCommand, Settings, load_settings
from storage.embedded.local_store import LocalStore
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import create
from tests.support.journal.journal_files import contents_of, files_of
from tests.support.journal.journal_ledgers import FILE_BYTES, embedded_journal, entry
from tests.support.packs.simulated_disk import PackDisk


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_checks, "agent_of", lambda *_, **__: None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    values = {
        "ledger": f"journal://{tmp_path}/journal",
        "store": f"file://{tmp_path}/store",
        "listen": ["127.0.0.1:0"],
        "http": "127.0.0.1:0",
    }
    return load_settings(CliCommand.AGENT, values, environment={})


async def all_of(findings: AsyncIterator[DoctorFinding]) -> list[tuple[CheckStatus, str]]:
    return [(finding.verdict, finding.text) async for finding in findings]


async def test_a_sound_one_is_fine_while_a_broker_has_it_open(settings: Settings, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    async with embedded_journal(tmp_path / "journal") as one:
        await claim_bucket(store, one.ledger, new_bucket_id="b")
        async with running_parts(one.ledger, store=store) as parts:
            await parts.ledger.propose(create("t"))
            before = contents_of(tmp_path / "journal")
            (files,) = check_journal(settings)
            assert (files.verdict, files.text) == (CheckStatus.FINE, "1 file, every header is readable")
            count = len(await one.ledger.untrimmed_entries())
            intact = f"the ledger in {tmp_path}/journal is intact: {count} entries"
            assert await all_of(check_ledger(settings)) == [(CheckStatus.FINE, intact)]
            identity = await all_of(check_identity(settings))
            assert [verdict for verdict, _ in identity] == [CheckStatus.FINE, CheckStatus.FINE]
            assert "name each other: cluster c, incarnation 1, bucket b" in identity[0][1]
            ((_, clock),) = await all_of(check_clock(settings))
            assert "clock" in clock
            assert contents_of(tmp_path / "journal") == before
    await store.close()


async def test_where_there_is_none_yet(settings: Settings) -> None:
    assert list(check_journal(settings)) == []
    assert await all_of(check_ledger(settings)) == []
    assert await all_of(check_clock(settings)) == []
    ((verdict, text),) = await all_of(check_identity(settings))
    assert (verdict, "are new" in text) == (CheckStatus.FINE, True)


async def test_a_folder_that_is_a_file_is_reported_by_the_check_of_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    values = {"ledger": f"journal://{tmp_path}/file/journal", "store": f"file://{tmp_path}/file/store"}
    places = load_settings(CliCommand.AGENT, values, environment={})
    assert list(check_journal(places)) == []
    for findings in (check_ledger(places), check_identity(places), check_clock(places)):
        assert CheckStatus.FAILED not in [verdict for verdict, _ in await all_of(findings)]
    assert CheckStatus.FAILED in [finding.verdict for finding in check_machine(places) if "dir" in finding.name]


def test_what_has_the_name_of_a_journal_and_is_no_folder(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    (finding,) = check_journal(settings)
    assert (finding.verdict, finding.text) == (CheckStatus.FAILED, f"{tmp_path}/journal is no folder")


def test_another_ledger_is_in_none() -> None:
    memory = load_settings(CliCommand.AGENT, {"ledger": "memory:", "store": "memory:"}, environment={})
    assert list(check_journal(memory)) == []


async def test_each_damaged_part_is_named_with_the_page_that_helps(settings: Settings, tmp_path: Path) -> None:
    async with embedded_journal(tmp_path / "journal") as one:
        session = await one.ledger.open_session("a")
        for row in range(DAMAGES_SHOWN + 3):
            await one.ledger.append(session, entry(row, b"l" * FILE_BYTES))
    files = files_of(tmp_path / "journal")[-DAMAGES_SHOWN - 2 : -1]  # an entry is in each
    for file in files:
        file.write_bytes(b"?" + file.read_bytes()[1:])
    findings = list(check_journal(settings))
    assert {finding.verdict for finding in findings} == {CheckStatus.FAILED}
    assert any(findings[0].text.startswith(f"{file}: ") for file in files)
    assert "header is unreadable" in findings[0].text
    assert "A file of the journal is damaged" in findings[0].remedy
    assert findings[-1].text == "1 damaged part more"


async def test_a_damaged_ledger_fails(settings: Settings, tmp_path: Path) -> None:
    async with embedded_journal(tmp_path / "journal") as one:
        session = await one.ledger.open_session("a")
        for row in range(3):
            await one.ledger.append(session, entry(row, b"l" * FILE_BYTES))
    damaged = files_of(tmp_path / "journal")[1]
    damaged.write_bytes(damaged.read_bytes().replace(b"lll", b"llL", 1))
    (finding,) = [finding async for finding in check_ledger(settings)]
    assert finding.verdict is CheckStatus.FAILED
    assert "checksum" in finding.text
    assert "The ledger in a journal is damaged" in finding.remedy


class TestLooks:
    """A broker may use a file again while it is read: what looks like damage once is none."""

    @pytest.fixture
    async def file(self, tmp_path: Path) -> Path:
        async with embedded_journal(tmp_path / "journal") as one:
            session = await one.ledger.open_session("a")
            for row in range(3):
                await one.ledger.append(session, entry(row))
        (file,) = files_of(tmp_path / "journal")
        return file

    @pytest.fixture
    def disk(self, monkeypatch: pytest.MonkeyPatch) -> PackDisk:
        disk = PackDisk()
        monkeypatch.setattr(journal_checks, "Files", lambda: disk)
        return disk

    def test_damage_is_what_every_look_sees(self, settings: Settings, file: Path, disk: PackDisk) -> None:
        whole = file.read_bytes()
        file.write_bytes(b"?" + whole[1:])
        opened_before = 0

        def change() -> None:
            nonlocal opened_before
            opened_before += 1
            if opened_before == 4:  # a look opens the file twice
                file.write_bytes(whole)

        disk.before["open_existing"] = change
        (finding,) = check_journal(settings)
        assert (finding.verdict, finding.text) == (CheckStatus.FINE, "1 file, every header is readable")

    def test_a_file_that_is_gone_is_looked_for_again(self, settings: Settings, file: Path, disk: PackDisk) -> None:
        disk.fail("open_existing", errno.ENOENT, times=2)
        (finding,) = check_journal(settings)
        assert finding.verdict is CheckStatus.FINE
        file.write_bytes(b"?" + file.read_bytes()[1:])
        disk.fail("open_existing", errno.ENOENT, times=2)
        (finding,) = check_journal(settings)
        assert finding.text.startswith(f"{file}: ")
        assert "header is unreadable" in finding.text

    @pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES])
    def test_what_cannot_be_read(self, settings: Settings, file: Path, disk: PackDisk, code: int) -> None:
        disk.fail("open_existing", code, times=9)
        (finding,) = check_journal(settings)
        assert (finding.verdict, f"{file.parent} cannot be read" in finding.text) == (CheckStatus.FAILED, True)


def test_an_acknowledgement_waits_for_one_sync(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.cli.doctor.machine_checks.FSYNC_SLOW_MS", 0.0)
    (remedy,) = [finding.remedy for finding in check_machine(settings) if finding.name == "fsync"]
    assert "waits for one of these" in remedy
