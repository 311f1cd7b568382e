"""Which program this is: by its files, so that an agent and its worker notice where they were replaced in between."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import agent

FOLDER: Final = Path(agent.__file__).parents[1]
"""The folder with the packages: `app` of an installed Penstock, or a checkout."""
PACKAGES: Final = ("agent", "coordinator", "iceberg_export", "protocol", "storage", "txn")


def fingerprint(folder: Path = FOLDER) -> str:
    """A digest of the names, sizes and times of all modules. It takes some milliseconds."""
    found = hashlib.blake2b(digest_size=16)
    for package in PACKAGES:
        for name, size, modified_ns in sorted(_modules(folder / package)):
            found.update(f"{name} {size} {modified_ns}\n".encode())
    return found.hexdigest()


def _modules(folder: Path) -> Iterator[tuple[str, int, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _modules(Path(entry.path))
        elif entry.name.endswith(".py"):
            status = entry.stat()
            yield entry.path, status.st_size, status.st_mtime_ns
