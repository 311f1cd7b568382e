"""A fetched archive is unpacked only if it is the one that is pinned."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.archives import Pin, unpack_npm, unpack_source_distribution, unpack_tar
from tools.steps import SetupFailed


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The one file of a package that was fetched before: nothing asks a registry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "main.c").write_text("int main;")
    archive = tmp_path / "cache" / "penstock" / "archives" / "sources-1.0" / "sources-1.0.tgz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "package", "package")
    return archive


@pytest.mark.parametrize("unpack", [unpack_npm, unpack_source_distribution])
def test_the_folder_within_an_archive_becomes_the_folder(
    fetched: Path, tmp_path: Path, unpack: Callable[[Pin, Path], None]
) -> None:
    sha256 = hashlib.sha256(fetched.read_bytes()).hexdigest()
    unpack(("@scope/sources", "1.0", sha256), tmp_path / "place")
    assert (tmp_path / "place" / "main.c").read_text() == "int main;"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "package", "place"]


def test_another_archive_than_the_pinned_one_is_removed(fetched: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match=r"tools/pins\.py pins: run it again"):
        unpack_npm(("sources", "1.0", "00"), tmp_path / "place")
    assert not fetched.exists()
    assert not (tmp_path / "place").exists()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    made.size = len(CONTENT) if kind == tarfile.REGTYPE else 0
    return made


CONTENT = b"written"
LINK = entry("link", tarfile.SYMTYPE, "../outside")
HOSTILE = {
    "above": [entry("../outside/file")],
    "in between": [entry("folder/../../outside/file")],
    "through a link to a folder": [LINK, entry("link/file")],
    "through a link to a file": [entry("link", tarfile.SYMTYPE, "../outside/file"), entry("link")],
    "a link in a linked folder": [LINK, entry("link/file", tarfile.SYMTYPE, "anything")],
    "another name of a file": [entry("name", tarfile.LNKTYPE, "../outside/secret"), entry("name")],
    "another name through a link": [LINK, entry("name", tarfile.LNKTYPE, "link/secret"), entry("name")],
}


@pytest.mark.parametrize("rule", ["tar", "fully_trusted", "none, as in Python 3.11.2"])
@pytest.mark.parametrize("entries", HOSTILE.values(), ids=list(HOSTILE))
def test_an_archive_writes_nothing_outside_its_folder(
    entries: list[tarfile.TarInfo], rule: str, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("kept")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as packed:
        for each in entries:
            packed.addfile(each, io.BytesIO(CONTENT))
    stream.seek(0)
    with (
        tarfile.open(fileobj=stream) as archive,
        pytest.raises((SetupFailed, tarfile.FilterError), match="outside"),
    ):
        unpack_tar(archive, tmp_path / "root", rule)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == "kept"
