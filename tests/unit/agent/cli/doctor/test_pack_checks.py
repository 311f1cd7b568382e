"""Doctor says what is damaged in the packs of a data folder, and changes nothing."""

from pathlib import Path

import pytest

from agent.cli.doctor.machine_checks import CheckStatus
from agent.cli.doctor.pack_checks import DAMAGES_SHOWN, check_packs
from agent.config.settings import CliCommand, Settings, load_settings
from tests.support.packs.opened_packs import opened
from tests.support.packs.pack_files import plant_object
from tests.support.packs.simulated_disk import PackDisk


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "store" / ".packs").mkdir(parents=True)
    return tmp_path


def settings_of(data_dir: Path) -> Settings:
    return load_settings(CliCommand.RUN, {"data-dir": str(data_dir)}, config_path=None)


def test_a_new_folder_has_nothing_to_say(tmp_path: Path) -> None:
    assert list(check_packs(settings_of(tmp_path / "new"))) == []


def test_sound_packs_are_fine_while_somebody_has_them_open(data_dir: Path) -> None:
    with opened(data_dir / "store" / ".packs") as packs:
        packs.append("a", "b")
        (finding,) = check_packs(settings_of(data_dir))
    assert (finding.verdict, finding.text) == (CheckStatus.FINE, "1 pack, every header is readable")


def test_a_file_in_the_place_of_the_folder_is_named_as_by_a_start(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".packs").touch()
    (finding,) = check_packs(settings_of(tmp_path))
    assert finding.verdict is CheckStatus.FAILED
    assert f"{tmp_path}/store/.packs is no folder: the records" in finding.text


def test_each_damaged_part_is_named_with_the_page_that_helps(data_dir: Path) -> None:
    for number in range(DAMAGES_SHOWN + 2):
        plant_object(data_dir / "store", f"{number}", b"x" * 100)
    files = sorted((data_dir / "store" / ".packs").iterdir())
    for file in files[:-1]:
        file.write_bytes(b"?" + file.read_bytes()[1:])
    before = {file: file.read_bytes() for file in files}
    findings = list(check_packs(settings_of(data_dir)))
    assert {file: file.read_bytes() for file in files} == before
    assert {finding.verdict for finding in findings} == {CheckStatus.FAILED}
    assert findings[0].text == f"{files[0]}: its header is unreadable"
    assert "A pack of the embedded store is damaged" in findings[0].remedy
    assert findings[-1].text == "1 damaged part more"


def test_what_is_being_written_at_this_moment_is_no_damage(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of a record is not there yet when it is looked for, and another record behind it is."""
    folder = data_dir / "store" / ".packs"
    with opened(folder) as packs:
        (first,) = packs.append("a")
        packs.append("b")
        packs.append("c")
        (file,) = folder.iterdir()
        whole = file.read_bytes()
        disk = PackDisk()
        reads: list[None] = []

        def appear() -> None:
            reads.append(None)
            if len(reads) == 1:
                file.write_bytes(whole[: first.record_first] + bytes(48) + whole[first.record_first + 48 :])
            if disk.calls["open_existing"] == 2:
                file.write_bytes(whole)

        disk.before["read_at"] = appear
        monkeypatch.setattr("agent.cli.doctor.pack_checks.Files", lambda: disk)
        (finding,) = check_packs(settings_of(data_dir))
    assert finding.verdict is CheckStatus.FINE
