"""What the image's description says fits the sources, and the steps of its builder do what it says."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from protocol.kernel_cache import ReadOnlyLocator
from tools.packaging.debian import DESCRIPTION
from tools.packaging.image import (
    FILES,
    REPOSITORY,
    Commit,
    build_image,
    build_older_image,
    clear_addresses,
    config,
    correct_records,
    keep_only,
    kernel_modules,
    leave_out,
    owners,
    previous_commit,
    read_commit,
)
from tools.packaging.oci import Owner
from tools.steps import ROOT, SetupFailed

COMMIT = Commit(revision="abc", seconds=1767323045)


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))


def test_the_modules_with_kernels_are_found_in_every_package(tmp_path: Path) -> None:
    for package in ("iceberg_export", "protocol"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert kernel_modules(tmp_path) == [
        "iceberg_export.rows.gather_kernel",
        "iceberg_export.typed.avro_kernels",
        "iceberg_export.typed.elision.flat_avro_writer_kernel",
        "iceberg_export.typed.protobuf_kernel",
        "protocol.records.kernels",
    ]


def test_kernels_are_read_from_where_they_were_compiled_to(description: dict[str, Any]) -> None:
    env = description["config"]["env"]
    assert env["NUMBA_CACHE_DIR"] == f"/{description['penstock']['kernels']}"
    assert env["NUMBA_CACHE_LOCATOR_CLASSES"] == f"{ReadOnlyLocator.__module__}.{ReadOnlyLocator.__name__}"


def test_the_entry_point_is_a_program_of_the_image(description: dict[str, Any]) -> None:
    program = FILES / "penstock" / description["config"]["entrypoint"][0].lstrip("/")
    assert os.access(program, os.X_OK)
    assert program.read_text().startswith(f"#!/usr/bin/python{description['libraries']['python']} ")


def test_the_user_has_a_name_and_the_folder_it_starts_in(description: dict[str, Any]) -> None:
    uid, gid = description["config"]["user"].split(":")
    assert f"penstock:x:{uid}:{gid}:" in (FILES / "base" / "etc" / "passwd").read_text()
    assert f"penstock:x:{gid}:" in (FILES / "base" / "etc" / "group").read_text()
    folder = owners(description["folders"])[description["config"]["workdir"].lstrip("/")]
    assert folder == Owner(uid=int(uid), gid=0, mode=0o770)


def test_the_configuration_has_what_the_specification_asks(description: dict[str, Any]) -> None:
    written = config(description["config"], "1.2.3", COMMIT)
    assert written["User"] == "10001:10001"
    assert written["StopSignal"] == "SIGTERM"
    assert written["ExposedPorts"] == {"9092/tcp": {}, "9644/tcp": {}}
    assert "PYTHONDONTWRITEBYTECODE=1" in written["Env"]
    labels = written["Labels"]
    assert labels["org.opencontainers.image.version"] == "1.2.3"
    assert labels["org.opencontainers.image.created"] == "2026-01-02T03:04:05Z"
    assert labels["org.opencontainers.image.revision"] == "abc"


def test_what_is_left_out_is_gone(tmp_path: Path) -> None:
    for path in ("a/tests/x", "a/b/tests/y", "a/keep.py", "c/drop.h"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "broken").symlink_to("nowhere")
    leave_out(tmp_path, ["**/tests", "**/*.h", "broken"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "c", "keep.py"]


def test_a_pattern_without_a_match_is_outdated(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match=r"matches 'gone/\*'"):
        leave_out(tmp_path, ["gone/*"])
    with pytest.raises(SetupFailed, match="matches 'gone'"):
        keep_only(tmp_path, ["gone"])


def test_only_what_is_named_is_kept(tmp_path: Path) -> None:
    for path in ("s3/data.json", "ec2/data.json", "endpoints.json", "readme"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    keep_only(tmp_path, ["*.json", "s3"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endpoints.json", "s3"]


def test_a_package_lists_no_file_that_the_image_lacks(tmp_path: Path) -> None:
    record = tmp_path / "tool-1.dist-info" / "RECORD"
    record.parent.mkdir()
    (tmp_path / "tool.py").touch()
    (tmp_path / "a,b.py").touch()
    kept = 'tool.py,sha256=ab,0\n"a,b.py",sha256=cd,0\ntool-1.dist-info/RECORD,,\n'
    record.write_text(f"bin/tool,sha256=ef,9\n{kept}../../bin/tool,sha256=ef,9\n")
    correct_records(tmp_path)
    assert record.read_text() == kept


def test_kernels_do_not_tell_which_process_compiled_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    note = b"\x80<function _skip at 0x7f17f37de340>)\x00 0x12"
    (tmp_path / "a" / "kernel.nbc").write_bytes(note)
    clear_addresses(tmp_path)
    assert (tmp_path / "a" / "kernel.nbc").read_bytes() == note.replace(b"7f17f37de340", b"000000000000")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, of 2026-01-02T03:04:05Z."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_DATE", f"{COMMIT.seconds} +0000")
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.com")
    (tmp_path / "file").write_text("text")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    return tmp_path


def test_an_image_has_the_time_of_its_commit(checkout: Path) -> None:
    commit = read_commit(checkout)
    assert re.fullmatch("[0-9a-f]{40}", commit.revision)
    assert commit.time == "2026-01-02T03:04:05Z"


def test_a_changed_checkout_is_named_as_such(checkout: Path) -> None:
    (checkout / "file").write_text("another text")
    assert read_commit(checkout).revision.endswith("-modified")


def test_a_file_that_settings_hide_counts_as_a_change(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").write_text("new\n")
    for setting in (("core.excludesFile", str(tmp_path / "hidden")), ("status.showUntrackedFiles", "no")):
        subprocess.run(["git", "-C", checkout, "config", *setting], check=True)
    (checkout / "new").touch()
    assert read_commit(checkout).revision.endswith("-modified")


def test_the_time_of_a_commit_does_not_depend_on_the_machine(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert read_commit(checkout).seconds == COMMIT.seconds


@pytest.mark.parametrize("name", ["penstock:1", "Penstock", "registry.example/", "a b", "registry.example/-x", ""])
def test_what_is_no_repository_is_rejected(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.packaging.image.MACHINES", ())  # a name that passes would build an image
    with pytest.raises(SetupFailed, match="is no repository"):
        build_image(tmp_path / "dist", name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["penstock", "registry.example/penstock", "registry.example:5000/a/pen__stock", "a/b"])
def test_repositories_have_the_form_of_the_specification(name: str) -> None:
    assert REPOSITORY.fullmatch(name)


def test_sources_without_git_need_a_time(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / ".git").rename(checkout / "history")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SetupFailed, match=r"git knows no commit of .*not a git repository.* set SOURCE_DATE_EPOCH"):
        read_commit(checkout)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(SetupFailed, match="SOURCE_DATE_EPOCH is 'today', which is no count of seconds"):
        read_commit(checkout)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(COMMIT.seconds))
    assert read_commit(checkout) == Commit(revision="unknown", seconds=COMMIT.seconds)


def test_an_older_commit_that_git_lacks_is_named(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match=r"(?s)cannot check out 'abcdef123456' of .*git fetch --unshallow"):
        build_older_image(tmp_path / "dist", "abcdef123456", repository=checkout)
    assert not (tmp_path / "dist").exists()


def test_the_release_before_is_an_ancestor_of_this_commit() -> None:
    done = subprocess.run(
        ["git", "-C", ROOT, "merge-base", "--is-ancestor", previous_commit(), "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr or f"{previous_commit()} is in another line of history"
