"""Logs of pods that are gone. Kubernetes deletes them with their pods, and a rolling restart deletes every pod: whoever
looks for what an agent said before a scenario failed would find nothing.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_SECONDS = 0.5
"""Between two looks for new logs: a container that ended and went within it leaves none."""


@contextmanager
def kept_pod_logs(pods: Sequence[Path], folder: Path) -> Iterator[None]:
    """Give each log of a container a second name in `folder` while the block lasts, as `POD_UID.CONTAINER.0.log`.

    `pods`: folders `/var/log/pods` of nodes, on the same file system. A log that the kubelet rotates keeps the name
    of its first part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_over = threading.Event()

    def keep() -> None:
        while not is_over.wait(LOOK_SECONDS):
            link_logs(pods, folder)

    thread = threading.Thread(target=keep, name="pod logs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        link_logs(pods, folder)


def link_logs(pods: Sequence[Path], folder: Path) -> None:
    """Give each log that has no second name yet one in `folder`."""
    for node in pods:
        for log in node.glob("*/*/*.log"):
            pod, container, name = log.parts[-3:]
            with suppress(FileExistsError, FileNotFoundError):  # it has its second name, or is gone with its pod
                (folder / f"{pod}.{container}.{name}").hardlink_to(log)
