"""Prometheus itself, which the monitoring run asks: `ensure_prometheus` provides Debian's.

Rule: the package is fetched by apt and unpacked into the cache folder. Nothing is installed on the machine, so no
service of it starts, and no root is needed.
"""

import shutil
from pathlib import Path

from tools.steps import SetupFailed, cache_folder, ensure, run

PACKAGE = "prometheus"


def prometheus_program() -> Path:
    """Where `ensure_prometheus` puts the program."""
    return cache_folder() / "prometheus-debian" / "usr" / "bin" / "prometheus"


def ensure_prometheus() -> Path:
    """Path of Prometheus, in the version of this machine's Debian. Raises `SetupFailed` with what to do."""

    def build(folder: Path) -> None:
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise SetupFailed(
                "The monitoring run asks Debian's Prometheus, and this machine has no apt: put the program prometheus "
                f"(2.42 or later) at {prometheus_program()}."
            )
        archives = folder / "archives"
        archives.mkdir()
        try:
            run("Prometheus", ["env", "--chdir", archives, "apt-get", "download", PACKAGE], attempts=2)
        except SetupFailed as failure:
            raise SetupFailed(f"{failure}\napt cannot fetch {PACKAGE}: apt-get update may help") from None
        (archive,) = archives.iterdir()
        run("Prometheus", ["dpkg-deb", "--extract", archive, folder])
        shutil.rmtree(archives)

    if not prometheus_program().exists():
        ensure("Prometheus of Debian", cache_folder() / "prometheus-debian", build)
    return prometheus_program()
