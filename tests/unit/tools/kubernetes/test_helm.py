"""helm and kubectl come out of the archive in the wheel that is pinned."""

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import pins
from tools.kubernetes.helm import ensure_helm, helm_program, kubectl_program


def layer() -> bytes:
    """An archive with both programs, as the wheel has it within another archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("helm", "kubectl"):
            archive.writestr(f"{name}/{name}", f"program {name}")
    return packed.getvalue()


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The wheel as if it had been fetched before, and pinned: nothing asks a registry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer())
        archive.addfile(entry, io.BytesIO(layer()))
    name, version, wheel_platform, _sha256 = pins.HELM_WHEEL
    place = tmp_path / "cache" / "penstock" / "archives" / f"{name}-{version}-{wheel_platform}" / "kubectl.whl"
    place.parent.mkdir(parents=True)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("lambda/layer.tgz", package.getvalue())
    sha256 = hashlib.sha256(place.read_bytes()).hexdigest()
    monkeypatch.setattr("tools.pins.HELM_WHEEL", (name, version, wheel_platform, sha256))
    return place


@pytest.mark.usefixtures("wheel")
def test_both_programs_can_be_started_and_nothing_else_is_kept() -> None:
    assert ensure_helm() == helm_program()
    for program in (helm_program(), kubectl_program()):
        assert program.read_text() == f"program {program.name}"
        assert os.access(program, os.X_OK)
    assert sorted(path.name for path in helm_program().parent.parent.iterdir()) == [
        "archives",
        f"helm-{pins.HELM}",
        "locks",
    ]
