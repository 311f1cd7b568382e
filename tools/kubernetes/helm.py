"""helm and kubectl, for the chart's tests.

Rule: on x86-64 they come out of a Python wheel, where they lie in an archive within an archive. No registry has them
for other machines, so helm is built there, and kubectl is missing.
"""

import platform
import shutil
import tarfile
import zipfile
from pathlib import Path

from tools import pins
from tools.archives import unpack_tar, unpack_wheel
from tools.go_servers import ensure_go, go_settings
from tools.steps import cache_folder, ensure, run

LAYER = "package/lib/layer.zip"
PROGRAMS = ("helm", "kubectl")
WHEEL_MACHINE = "x86_64"


def helm_program() -> Path:
    """Where `ensure_helm` puts helm."""
    return _folder() / "helm"


def kubectl_program() -> Path:
    """Where `ensure_helm` puts kubectl; there is none on other machines than x86-64."""
    return _folder() / "kubectl"


def ensure_helm() -> Path:
    """Path of helm."""
    build = _unpack if platform.machine() == WHEEL_MACHINE else _build
    return ensure(f"helm {pins.HELM}", _folder(), build) / "helm"


def _folder() -> Path:
    return cache_folder() / f"helm-{pins.HELM}"


def _unpack(folder: Path) -> None:
    wheel = folder.with_name(f"{folder.name}.wheel")
    shutil.rmtree(wheel, ignore_errors=True)
    unpack_wheel(pins.HELM_WHEEL, wheel)
    (package,) = wheel.rglob("*.tgz")
    with tarfile.open(package) as archive:
        unpack_tar(archive, wheel)
    with zipfile.ZipFile(wheel / LAYER) as layer:
        for name in PROGRAMS:
            program = folder / name
            program.write_bytes(layer.read(f"{name}/{name}"))
            program.chmod(0o755)
    shutil.rmtree(wheel)


def _build(folder: Path) -> None:
    run(
        "helm",
        [ensure_go(), "install", "-ldflags=-s -w", f"helm.sh/helm/v4/cmd/helm@{pins.HELM}"],
        env=go_settings(folder),
        attempts=3,
    )
