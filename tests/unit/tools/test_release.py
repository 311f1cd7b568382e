"""Archives of a release are the same for the same files, and its checksums are those that sha256sum reads."""

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.release import SUMS, ignored, pack, write_sums


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for path in ("Chart.yaml", "templates/agents.yaml", "ci/minimal.yaml", ".helmignore"):
        (tmp_path / "chart" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "chart" / path).write_text(path)
    return tmp_path / "chart"


def names(archive: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive.read_bytes()))) as files:
        return [entry.name for entry in files if entry.isreg()]


def test_a_chart_has_what_helm_would_pack(chart: Path, tmp_path: Path) -> None:
    assert set(ignored()) == {".helmignore", "ci"}
    pack(tmp_path / "work", {"penstock": chart}, tmp_path / "chart.tgz", without=ignored())
    assert names(tmp_path / "chart.tgz") == ["penstock/Chart.yaml", "penstock/templates/agents.yaml"]


def test_only_files_of_some_kinds_are_packed(chart: Path, tmp_path: Path) -> None:
    (chart / "code.py").touch()
    pack(tmp_path / "work", {"x": chart}, tmp_path / "x.tgz", only=(".py",))
    assert names(tmp_path / "x.tgz") == ["x/code.py"]


def test_times_do_not_count(chart: Path, tmp_path: Path) -> None:
    pack(tmp_path / "first", {"x": chart}, tmp_path / "first.tgz")
    for path in chart.rglob("*"):
        os.utime(path, (1, 1))
    pack(tmp_path / "second", {"x": chart}, tmp_path / "second.tgz")
    assert (tmp_path / "first.tgz").read_bytes() == (tmp_path / "second.tgz").read_bytes()


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    write_sums(tmp_path)
    write_sums(tmp_path)  # its own file does not count
    assert len((tmp_path / SUMS).read_text().splitlines()) == 2
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=tmp_path, check=True, capture_output=True)
