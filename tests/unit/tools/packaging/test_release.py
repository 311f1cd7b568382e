"""Archives of a release are the same for the same files, and its checksums are those that sha256sum reads. A trial
passes only if what it tries works."""

import contextlib
import gzip
import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.packaging import release_trials
from tools.packaging.release import SUMS, complete, ignored, pack, write_sums
from tools.packaging.release_trials import broker, runtime_config, try_contents, try_image
from tools.steps import SetupFailed, main


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


CONFIG = {"User": "7:8", "Entrypoint": ["/program"], "Env": ["A=b"], "WorkingDir": "/work"}


def test_an_image_is_tried_without_rights(tmp_path: Path) -> None:
    bundle = runtime_config(CONFIG, ["run"], tmp_path)
    assert bundle["root"]["readonly"]
    process = bundle["process"]
    assert process["user"] == {"uid": 7, "gid": 8}
    assert process["args"] == ["/program", "run"]
    assert process["env"] == ["A=b"]
    assert process["noNewPrivileges"]
    assert process["capabilities"] == {}


def test_an_image_that_nothing_can_run_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(release_trials, "RUNTIMES", ("no-such-runtime",))
    assert try_image(tmp_path / "image.tar", tmp_path) == "none of no-such-runtime is installed"
    assert "NOT RUN        none of no-such-runtime is installed" in capsys.readouterr().out


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    partial = tmp_path / "penstock-1.2.3.partial"
    partial.mkdir()
    (partial / "penstock-1.2.3-amd64.oci.tar").touch()
    return partial


def test_an_image_that_was_not_tried_leaves_no_release(partial: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partial.with_suffix("")
    with pytest.raises(SystemExit, match="1"):
        main(lambda: complete(partial, folder, "none of runc, crun is installed"))
    assert re.search(r"not tried: none of runc, crun is .*Install runc.*--untried-image", capsys.readouterr().out)
    assert not folder.exists()
    assert [path.name for path in partial.iterdir()] == ["penstock-1.2.3-amd64.oci.tar"]


def test_what_was_tried_gets_checksums_and_the_name_of_a_release(partial: Path) -> None:
    folder = partial.with_suffix("")
    complete(partial, folder, None)
    assert not partial.exists()
    assert {path.name for path in folder.iterdir()} == {"penstock-1.2.3-amd64.oci.tar", SUMS}


def test_a_broker_that_ends_fails_its_trial(tmp_path: Path) -> None:
    with (
        pytest.raises(SetupFailed, match=r"(?s)no room.*the broker was not ready"),
        broker("the broker", ["sh", "-c", "echo no room; exit 3"], tmp_path / "log"),
    ):
        raise AssertionError("nothing was ready")


@pytest.mark.parametrize("status", [0, 3])
def test_a_broker_has_to_stop_by_itself(status: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    script = f"trap 'exit {status}' TERM; echo ready kafka=a http=b; while :; do read line < {tmp_path}/pipe; done"
    expected = contextlib.nullcontext() if status == 0 else pytest.raises(SetupFailed, match="did not stop")
    with expected, broker("the broker", ["sh", "-c", script], tmp_path / "log"):
        pass


def test_variables_of_this_machine_do_not_reach_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_LISTEN", "elsewhere")
    with broker("the broker", ["sh", "-c", 'echo "[$PENSTOCK_LISTEN]"; echo ready kafka=a http=b'], tmp_path / "log"):
        pass
    assert (tmp_path / "log").read_text().startswith("[]\n")


def test_a_list_of_contents_without_packages_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "list").write_text('{"packages": []}')
    with pytest.raises(SetupFailed, match="lists"):
        try_contents(tmp_path / "list")
