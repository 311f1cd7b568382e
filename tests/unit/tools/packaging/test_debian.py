"""Debian's packages are unpacked as dpkg would, without its scripts, and only as the lock file pins them."""

import hashlib
import io
import lzma
import tarfile
import tomllib
from pathlib import Path

import pytest

from tools.packaging.debian import (
    DESCRIPTION,
    Package,
    ar_members,
    ensure_packages,
    name_archives,
    read_lock,
    sources,
    unpack,
)
from tools.steps import SetupFailed


def ar(members: dict[str, bytes]) -> bytes:
    """An archive of ar(1): a header of 60 bytes before each member, which begins at an even position."""
    content = b"!<arch>\n"
    for name, member in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n".encode()
        content += member + b"\n" * (len(member) % 2)
    return content


def tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return lzma.compress(stream.getvalue())


CONTROL = {"./control": b"Package: tool\nVersion: 1-2\n", "./md5sums": b"0 x\n", "./postinst": b"#!/bin/sh\n"}


def package(
    folder: Path, files: dict[str, bytes], mode: int = 0o644, control: dict[str, bytes] = CONTROL, ending: str = "xz"
) -> Package:
    """A package called `tool` with these files, whose archive is in `folder`."""
    data = f"data.tar.{ending}"
    content = ar({"debian-binary": b"2.0\n", "control.tar.xz/": tar(control), data: tar(files, mode)})
    (folder / "tool.deb").write_bytes(content)
    return pinned(content)


def test_members_are_read_by_their_sizes() -> None:
    members = {"debian-binary": b"2.0\n", "odd": b"123", "last": b"x"}
    assert dict(ar_members(ar(members))) == members


def test_another_kind_of_file_is_no_package() -> None:
    with pytest.raises(SetupFailed, match="no package of Debian begins with b'<html>"):
        list(ar_members(b"<html>no such file</html>"))


def test_files_are_unpacked_and_the_package_is_noted_for_scanners(tmp_path: Path) -> None:
    root = tmp_path / "root"
    unpack(package(tmp_path, {"./usr/bin/tool": b"program"}, mode=0o755), tmp_path, root)
    assert (root / "usr" / "bin" / "tool").read_bytes() == b"program"
    assert (root / "usr" / "bin" / "tool").stat().st_mode & 0o7777 == 0o755
    notes = root / "var" / "lib" / "dpkg" / "status.d"
    assert (notes / "tool").read_text().startswith("Package: tool\n")
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["tool", "tool", "tool.md5sums"]


def test_a_package_writes_nothing_outside_the_folder(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="leads outside its folder"):
        unpack(package(tmp_path, {"../outside": b""}), tmp_path, tmp_path / "root")
    assert not (tmp_path / "outside").exists()


def test_an_archive_that_changed_since_it_was_fetched_is_not_unpacked(tmp_path: Path) -> None:
    expected = package(tmp_path, {"./tool": b"program"})
    package(tmp_path, {"./tool": b"another program"})
    with pytest.raises(SetupFailed, match=r"tool\.deb has changed since it was fetched: remove the folder"):
        unpack(expected, tmp_path, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_package_that_scanners_would_not_see_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="the package tool has no file control"):
        unpack(package(tmp_path, {}, control={"./md5sums": b""}), tmp_path, tmp_path / "root")


def test_an_unknown_compression_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match=r"tool has \['data\.tar\.zst'\] as data: xz and gzip can be unpacked"):
        unpack(package(tmp_path, {}, ending="zst"), tmp_path, tmp_path / "root")


def test_a_line_of_the_lock_has_three_words(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("# title\n\ntool 1 ab # a comment\n")
    assert read_lock(tmp_path / "lock") == [Package(name="tool", version="1", sha256="ab")]
    (tmp_path / "lock").write_text("tool 1\n")
    with pytest.raises(SetupFailed, match="has a line 'tool 1', which is not NAME VERSION SHA256"):
        read_lock(tmp_path / "lock")


def pinned(content: bytes, name: str = "tool") -> Package:
    return Package(name=name, version="1", sha256=hashlib.sha256(content).hexdigest())


def test_archives_are_known_by_their_digests(tmp_path: Path) -> None:
    (tmp_path / "tool_1%3a1_amd64.deb").write_bytes(b"archive")
    name_archives(tmp_path, [pinned(b"archive")])
    assert [path.name for path in tmp_path.iterdir()] == ["tool.deb"]


def test_an_archive_with_another_digest_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "tool_1_amd64.deb").write_bytes(b"another archive")
    with pytest.raises(SetupFailed, match=r"tool_1_amd64\.deb has the SHA-256 .* python3 -m tools\.packaging\.debian"):
        name_archives(tmp_path, [pinned(b"archive")])


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "tool_1_amd64.deb").write_bytes(b"archive")
    with pytest.raises(SetupFailed, match="did not fetch library"):
        name_archives(tmp_path, [pinned(b"archive"), pinned(b"library", "library")])


def test_archives_that_were_fetched_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")  # no apt-get
    monkeypatch.setenv("DEBIAN_SOURCES", "/dev/null")
    with pytest.raises(SetupFailed, match="apt-get cannot be started"):
        ensure_packages([pinned(b"archive")])
    key = hashlib.sha256(f"tool 1 {pinned(b'archive').sha256}".encode()).hexdigest()[:16]
    (tmp_path / "penstock" / f"debian-{key}").mkdir(parents=True)
    assert ensure_packages([pinned(b"archive")]).name == f"debian-{key}"


def test_other_servers_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sources.list").write_text("deb file:/mirror trixie main\n")
    monkeypatch.setenv("DEBIAN_SOURCES", str(tmp_path / "sources.list"))
    assert sources() == "deb file:/mirror trixie main\n"


def test_the_lock_pins_the_packages_of_the_image() -> None:
    description = tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))
    assert [package.name for package in read_lock()] == description["debian"]["packages"]
    assert all(len(bytes.fromhex(package.sha256)) == 32 for package in read_lock())
