"""The wheel, in environments that hold nothing else: one package of the top level, and a broker that serves."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from agent.runtime.version import VERSION
from tests.support.services.local_services import PenstockFactory
from tools.environment import UV_SETTINGS, ensure_uv
from tools.packaging.wheel import build_wheel
from tools.steps import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DIST_INFO = f"penstock_broker-{VERSION}.dist-info"
JOB = """
import sys
from penstock.application import find_packages
find_packages()
from agent.cli.spark_jobs import run_job
sys.exit(run_job("verify", ["--help"], {}))
"""


SECONDS_MAX = 170


def run(*command: str | Path, env: dict[str, str] | None = None, folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **UV_SETTINGS, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, set[str]]]:
    """The `bin` of an environment with the locked libraries and the wheel; what the wheel added to site-packages."""
    folder = tmp_path_factory.mktemp("environment")
    options: list[str | Path] = ["--frozen", "--no-install-project", "--project", ROOT, "--python", sys.executable]
    run(ensure_uv(), "sync", *options, env={"UV_PROJECT_ENVIRONMENT": str(folder / "venv")}, folder=folder)
    (site_packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    before = {path.name for path in site_packages.iterdir()}
    python = folder / "venv" / "bin" / "python"
    run(ensure_uv(), "pip", "install", "--offline", "--no-deps", "--python", python, wheel, folder=folder)
    yield python.parent, {path.name for path in site_packages.iterdir()} - before
    shutil.rmtree(folder)


def test_one_folder_is_added_to_site_packages(installed: tuple[Path, set[str]]) -> None:
    assert installed[1] == {"penstock", DIST_INFO}


def test_a_broker_serves_from_an_installed_wheel(installed: tuple[Path, set[str]], penstock: PenstockFactory) -> None:
    broker = penstock(program=(installed[0] / "penstock",))
    assert run(installed[0] / "penstock-broker", "--version", folder=broker.data) == f"penstock {VERSION}\n"
    assert run(installed[0] / "python", "-m", "penstock", "--version", folder=broker.data) == f"penstock {VERSION}\n"


def test_no_bare_name_is_importable_beside_an_installed_wheel(installed: tuple[Path, set[str]], tmp_path: Path) -> None:
    look = "import importlib.util as u; print([n for n in ('agent', 'protocol', 'storage', 'txn') if u.find_spec(n)])"
    assert run(installed[0] / "python", "-c", look, folder=tmp_path) == "[]\n"


def test_a_spark_job_of_a_command_finds_the_packages(installed: tuple[Path, set[str]], tmp_path: Path) -> None:
    assert "--agent" in run(installed[0] / "python", "-c", JOB, folder=tmp_path)


def test_equal_sources_give_an_equal_wheel(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()
    names = ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"penstock", DIST_INFO}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_runs_as_a_tool_on_every_python(
    version: str, wheel: Path, penstock: PenstockFactory, tmp_path: Path
) -> None:
    find: list[str | Path] = [ensure_uv(), "python", "find", "--no-project", version]
    # pyenv's shims answer for the one version alone that is chosen.
    of_pyenv = map(str, Path.home().glob(f".pyenv/versions/{version}*/bin"))
    path = os.pathsep.join([*of_pyenv, os.environ["PATH"]])
    settings = {**os.environ, **UV_SETTINGS, "PATH": path}
    found = subprocess.run(find, env=settings, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"this machine has no Python {version}, and setups fetch none")
    env = {**UV_SETTINGS, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_PYTHON": found.stdout.strip()}
    program = (ensure_uv(), "tool", "run", "--isolated", "--from", wheel, "penstock")
    broker = penstock(program=program, env=env, start_seconds_max=SECONDS_MAX)
    assert broker.process.is_running
