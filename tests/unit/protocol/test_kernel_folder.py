"""The folder of `--cache-dir` is remembered for the kernels, without numba."""

from pathlib import Path

import pytest

from protocol import kernel_folder
from protocol.kernel_folder import choose_kernel_folder


def test_what_was_chosen_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_folder, "_chosen", None)
    assert kernel_folder.kernel_folder() is None
    choose_kernel_folder(tmp_path)
    assert kernel_folder.kernel_folder() == tmp_path
