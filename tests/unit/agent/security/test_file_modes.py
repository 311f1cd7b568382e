"""Whether strangers can read a file with secrets."""

import logging
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from agent.config.secret_files import SecretFile
from agent.security.file_modes import open_secret_files, warn_of_open_secrets

OWN = frozenset({os.getegid()})
NO_GROUP: frozenset[int] = frozenset()


def strangers(path: Path, root: Path, groups: Collection[int] = OWN) -> list[str]:
    file = SecretFile(origin="--tls-key", path=path)
    return [found.strangers for found in open_secret_files([file], groups=groups, root=root)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that every user may enter, and that stands for the root of the file system."""
    tmp_path.chmod(0o755)
    return tmp_path


def written(path: Path, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("secret")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o666])
def test_a_file_that_others_may_read_or_write_is_open_to_every_user(folder: Path, mode: int) -> None:
    assert strangers(written(folder / "key", mode), folder) == ["every user of this machine"]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o660, 0o611])
def test_a_file_of_its_owner_and_of_a_group_of_the_agent_is_not_open(folder: Path, mode: int) -> None:
    assert strangers(written(folder / "key", mode), folder) == []


def test_the_group_of_a_file_is_foreign_where_the_agent_is_not_in_it(folder: Path) -> None:
    (text,) = strangers(written(folder / "key", 0o640), folder, NO_GROUP)
    assert text.startswith("group ")
    assert text.endswith(", in which the agent is not")
    assert strangers(written(folder / "own", 0o600), folder, NO_GROUP) == []


def test_a_folder_that_lets_no_stranger_in_closes_what_is_in_it(folder: Path) -> None:
    key = written(folder / "tls" / "key", 0o644)
    key.parent.chmod(0o700)
    assert (strangers(key, folder), strangers(key, folder, NO_GROUP)) == ([], [])
    key.parent.chmod(0o710)
    assert (strangers(key, folder), len(strangers(key, folder, NO_GROUP))) == ([], 1)


def test_a_volume_of_kubernetes_is_not_open_whatever_its_modes(folder: Path) -> None:
    written(folder / "tls" / "..2026_11_29" / "tls.key", 0o644)
    (folder / "tls" / "..data").symlink_to("..2026_11_29")
    (folder / "tls" / "tls.key").symlink_to("..data/tls.key")
    assert strangers(folder / "tls" / "tls.key", folder) == []


def test_a_link_is_as_open_as_the_file_that_it_leads_to(folder: Path) -> None:
    target = written(folder / "real" / "key", 0o644)
    (folder / "key").symlink_to(target)
    assert len(strangers(folder / "key", folder)) == 1
    target.parent.chmod(0o700)
    assert strangers(folder / "key", folder) == []


def test_a_secret_of_a_container_is_not_open(folder: Path) -> None:
    key = written(folder / "run" / "secrets" / "key", 0o444)
    assert len(strangers(key, folder)) == 1
    (folder / ".dockerenv").touch()
    assert strangers(key, folder) == []
    assert len(strangers(written(folder / "etc" / "key", 0o444), folder)) == 1


def test_a_file_that_is_not_there_is_not_open(folder: Path) -> None:
    assert strangers(folder / "none", folder) == []


def test_the_log_names_file_option_mode_and_remedy(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = written(folder / "key", 0o644)
    with caplog.at_level(logging.WARNING, logger="agent.security.file_modes"):
        warn_of_open_secrets([SecretFile(origin="--tls-key", path=key)], root=folder)
    (record,) = caplog.records
    assert record.getMessage() == "a file with secrets is open to others"
    fields = record.__dict__
    assert (fields["file"], fields["option"], fields["mode"]) == (str(key), "--tls-key", "0644")
    assert fields["remedy"].startswith(f"chmod go= {key}")
