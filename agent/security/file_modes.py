"""Who can read the files with secrets that an agent's settings name: a warning at the start, and by `penstock doctor`.

A file is open where a stranger may read or write it, and reach it through its folders. A stranger is every user that
is neither the file's owner nor in its group; the members of the file's group are strangers, too, where the agent is
not among them. Root is in no particular group: for it the group's bits do not count.

Not judged are files that only one container has, whatever their mode: the volumes that Kubernetes writes, and
`/run/secrets` in a container. Kubernetes gives the files of a Secret to root, with 0644 unless `defaultMode` says
otherwise, so that an agent can read them that is not root.
Source: AtomicWriter of Kubernetes, which makes every file of a volume a symlink through `..data`; "Manage secrets" of
Docker's documentation for `/run/secrets`.
"""

import logging
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config.secret_files import SecretFile

_KUBERNETES_LINK: Final = "..data"
_CONTAINER_SECRETS: Final = "run/secrets"
_CONTAINER_MARKS: Final = (".dockerenv", "run/.containerenv")
"""The files by which Docker and Podman mark the root of a container."""
_READ_OR_WRITE: Final = 0o6

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSecretFile:
    """A file with secrets that strangers can read or write."""

    file: SecretFile
    mode: int
    """The permission bits."""
    strangers: str
    """Who they are: `every user of this machine`, or `group NAME, in which the agent is not`."""

    @property
    def text(self) -> str:
        """The finding, with the file, for people."""
        return f"{self.file.path} ({self.file.origin}) is open to {self.strangers}: mode {self.mode:04o}"

    @property
    def remedy(self) -> str:
        """The remedy, for the operator."""
        return f"chmod go= {self.file.path}, and replace the secrets in it if others may have read them"


def open_secret_files(
    files: Iterable[SecretFile], *, groups: Collection[int] | None = None, root: Path = Path("/")
) -> Iterator[OpenSecretFile]:
    """The files among `files` that strangers can read or write. A file that is not there is none of them.

    Args:
        files: the files to judge.
        groups: the ids of the groups that are no strangers; None for those of this process, and for all if it is root.
        root: the root of the file system; folders above it are not judged.
    """
    if not hasattr(os, "geteuid"):  # Windows has no such modes
        return
    if groups is None and os.geteuid() != 0:
        groups = {os.getegid(), *os.getgroups()}
    for file in files:
        if _is_of_a_container(file.path, root):
            continue
        try:
            path = file.path.resolve(strict=True)
            folders = [folder.stat() for folder in path.parents if folder.is_relative_to(root)]
            status = path.stat()
        except OSError:
            continue
        strangers = _strangers(status, folders, groups)
        if strangers:
            yield OpenSecretFile(file=file, mode=stat.S_IMODE(status.st_mode), strangers=strangers)


def warn_of_open_secrets(files: Iterable[SecretFile], *, root: Path = Path("/")) -> None:
    """Log a warning for each file with secrets that strangers can read or write."""
    for open_file in open_secret_files(files, root=root):
        log.warning(
            "a file with secrets is open to others",
            extra={
                "file": str(open_file.file.path),
                "option": open_file.file.origin,
                "mode": f"{open_file.mode:04o}",
                "readers": open_file.strangers,
                "remedy": open_file.remedy,
            },
        )


def _strangers(status: os.stat_result, folders: Iterable[os.stat_result], groups: Collection[int] | None) -> str:
    """The strangers that have the file and reach it through `folders`; "" where there are none."""
    folders = list(folders)
    if status.st_mode & _READ_OR_WRITE and all(folder.st_mode & stat.S_IXOTH for folder in folders):
        return "every user of this machine"
    is_foreign = groups is not None and status.st_gid not in groups
    if is_foreign and status.st_mode >> 3 & _READ_OR_WRITE and all(_lets_in(each, status.st_gid) for each in folders):
        return f"group {_group_name(status.st_gid)}, in which the agent is not"
    return ""


def _lets_in(folder: os.stat_result, group: int) -> bool:
    """Whether the members of a group may pass through a folder."""
    return bool(folder.st_mode & (stat.S_IXGRP if folder.st_gid == group else stat.S_IXOTH))


def _group_name(group: int) -> str:
    import grp  # late: Windows has no such module

    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _is_of_a_container(path: Path, root: Path) -> bool:
    """Whether a file lies where only one container sees it."""
    if any((folder / _KUBERNETES_LINK).is_symlink() for folder in path.parents):
        return True
    is_container = any((root / mark).exists() for mark in _CONTAINER_MARKS)
    return is_container and path.is_relative_to(root / _CONTAINER_SECRETS)
