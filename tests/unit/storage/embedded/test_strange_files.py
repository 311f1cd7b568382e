"""What has the name of a file and is none: it is named, nobody waits for it, and everything else is served."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.embedded.local_files import Files
from storage.embedded.pack_opening import PackFiles
from storage.embedded.pack_reader import PackReader
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectDamaged, StoreMisconfigured
from tests.support.packs.opened_packs import opened

STRAY = "0000000900000000.pack"
Make = Callable[[Path], None]


def make_socket(path: Path) -> None:
    os.chdir(path.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as unbound:
        unbound.bind(path.name)


@pytest.fixture(
    params=[
        (os.mkfifo, "no regular file"),
        (Path.mkdir, "a directory"),
        (make_socket, "no regular file"),
        (lambda path: path.symlink_to("nowhere"), "no regular file"),
    ],
    ids=["pipe", "directory", "socket", "dangling link"],
)
def strange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Make, str]:
    monkeypatch.chdir(tmp_path)
    made: tuple[Make, str] = request.param
    return made


@pytest.mark.timeout(20)
def test_among_packs_it_is_reported_and_left_alone(tmp_path: Path, strange: tuple[Make, str]) -> None:
    make, kind = strange
    folder = tmp_path / "packs"
    with opened(folder) as packs:
        packs.append("a")
    make(folder / STRAY)
    for start in range(2):
        with opened(folder, nonce_first=50 + start) as packs:
            assert packs.contents() == {"a": b"payload"} | ({"b": b"payload"} if start else {})
            assert [damage.file for damage in packs.damages] == [str(folder / STRAY)]
            assert packs.damages[0].detail == f"it is {kind}, and has the name of a pack"
            assert packs.folder.has_gaps, "a pack of that name may have been there"
            packs.append("b")
            assert packs.folder.find("b") == b"payload"
            with pytest.raises(ObjectDamaged):
                packs.folder.find("c")
    reader = PackReader(str(folder))
    assert reader.get("a") == b"payload"
    with pytest.raises(ObjectDamaged):
        reader.get("c")
    files = PackFiles(str(folder), Files())
    assert [damage.file for damage in files.damages()] == [str(folder / STRAY)]
    assert os.path.lexists(folder / STRAY)


@pytest.mark.parametrize("is_writer", [False, True])
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_in_the_place_of_the_folder_it_is_named(tmp_path: Path, make: Make, *, is_writer: bool) -> None:
    make(tmp_path / "packs")
    with pytest.raises(StoreMisconfigured, match="packs is no folder: the records"):
        PackStore(tmp_path / "packs", now_ms=lambda: 0, new_nonce=lambda: bytes(16), is_writer=is_writer)
