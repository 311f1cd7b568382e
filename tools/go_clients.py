"""The Go client that the torture run writes and reads with.

Rule: its module lies in the tree with `go.mod` and `go.sum`, so versions and hashes are pinned there; the program
lies in our cache folder, under the hash of its sources.
"""

import hashlib
from pathlib import Path

from tools.go_servers import ensure_go, go_settings
from tools.steps import ROOT, cache_folder, ensure, run

SOURCES = ROOT / "tests" / "torture" / "go"


def torture_client() -> Path:
    """Where `ensure_torture_client` puts the program."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir())))
    return cache_folder() / f"torture-client-{digest.hexdigest()[:12]}" / "torture"


def ensure_torture_client() -> Path:
    """Path of the program, built from `SOURCES`; modules come from the ordinary module proxy."""

    def build(folder: Path) -> None:
        go = ensure_go()
        command: list[str | Path] = [go, "-C", SOURCES, "build", "-ldflags=-s -w", "-o", folder / "torture", "."]
        run("torture-client", command, env=go_settings(folder), attempts=3)

    return ensure("Go client (franz-go)", torture_client().parent, build) / "torture"
