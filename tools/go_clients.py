"""The Go clients that the torture run and the transactional workload write and read with.

Rule: a module lies in the tree with `go.mod` and `go.sum`, so versions and hashes are pinned there; its program lies in
our cache folder, under the hash of its sources.
"""

import hashlib
from pathlib import Path

from tools.go_servers import ensure_go, go_settings
from tools.steps import ROOT, cache_folder, ensure, run

FRANZ_GO = "github.com/twmb/franz-go"
CLIENTS = ("torture", "jepsen")
"""Folders below `tests`, each with its module in `go`; its program has the same name."""


def go_client(name: str) -> Path:
    """Where `ensure_go_client` puts the program."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_sources(name).iterdir())))
    return cache_folder() / f"{name}-client-{digest.hexdigest()[:12]}" / name


def ensure_go_client(name: str) -> Path:
    """Path of the program of one of `CLIENTS`, built; modules come from the ordinary module proxy."""

    def build(folder: Path) -> None:
        command: list[str | Path] = [
            ensure_go(),
            "-C",
            _sources(name),
            "build",
            "-ldflags=-s -w",
            "-o",
            folder / name,
            ".",
        ]
        run(f"{name}-client", command, env=go_settings(folder), attempts=3)

    return ensure(f"Go client ({name})", go_client(name).parent, build) / name


def franz_go_version() -> str:
    """The version that the clients are pinned to."""
    words = (_sources("torture") / "go.mod").read_text().split()
    return words[words.index(FRANZ_GO) + 1].removeprefix("v")


def ensure_franz_go_tests() -> Path:
    """Path of the program with franz-go's own tests of its client, built from its module."""
    place = cache_folder() / f"franz-go-tests-{franz_go_version()}"

    def build(folder: Path) -> None:
        words: list[str | Path] = [ensure_go(), "-C", _sources("torture"), "test", "-c", "-o", folder / "tests"]
        run("franz-go's tests", [*words, f"{FRANZ_GO}/pkg/kgo"], env=go_settings(folder), attempts=3)

    return ensure("franz-go's tests", place, build) / "tests"


def _sources(name: str) -> Path:
    return ROOT / "tests" / name / "go"
