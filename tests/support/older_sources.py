"""Sources of an older commit of this repository."""

import io
import subprocess
import tarfile
from pathlib import Path

from tools.steps import ROOT


def extract(commit: str, destination: Path, *paths: str) -> Path:
    """Write the files of a commit below `destination`, those of `paths` alone if there are some; returns the folder."""
    command = ["git", "-C", str(ROOT), "archive", commit, *paths]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(destination, filter="data")
    return destination
