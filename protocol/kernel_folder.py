"""The folder of `--cache-dir`, in which this process keeps compiled kernels.

Apart from `protocol.kernel_cache`, which reads it: that module imports numba, and a process that loads no kernels never
does.
"""

from pathlib import Path

_chosen: Path | None = None


def choose_kernel_folder(folder: Path | None) -> None:
    """Keep compiled kernels in `folder`; None for wherever numba keeps them. Call it before any kernel is loaded."""
    global _chosen
    _chosen = folder


def kernel_folder() -> Path | None:
    """The folder that was chosen; None for none."""
    return _chosen
