"""The files in the folder of a journal, and their contents."""

from collections.abc import Mapping
from pathlib import Path


def files_of(folder: Path) -> list[Path]:
    """The files in the order of their names; none where there is no folder."""
    return sorted(folder.iterdir()) if folder.exists() else []


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files_of(folder)}


def restore(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Let the folder have these contents, and nothing else; it is made where it is missing."""
    folder.mkdir(exist_ok=True)
    for path in files_of(folder):
        path.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def zero(path: Path, first: int, end: int) -> None:
    """Let the bytes `[first, end)` of a file be zeros."""
    content = path.read_bytes()
    path.write_bytes(content[:first] + bytes(end - first) + content[end:])
