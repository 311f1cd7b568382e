"""Compiled kernels are read where an image keeps them, though nothing can be written there, and never for another CPU.

The slow parts run in processes of their own, as numba's picture of the CPU is made once.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from numba import types
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

from protocol.kernel_cache import _CACHE, _FEATURES, KernelCache, cpu_features, kernel, uncached_reason

ROOT = Path(__file__).parents[3]
LEVEL = "x86-64-v3"
OF_LEVEL = _FEATURES[LEVEL].split()
READ_ONLY = "protocol.kernel_cache.ReadOnlyLocator"
IMAGE = {"CACHE_LOCATOR_CLASSES": READ_ONLY, "CACHE_DIR": "/image", "CPU_NAME": LEVEL, "CPU_FEATURES": ""}
PLAIN = {"CACHE_LOCATOR_CLASSES": "", "CACHE_DIR": "", "CPU_NAME": None, "CPU_FEATURES": None}
OF_FOLDER = {
    "CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "CACHE_DIR": "/kept", "CPU_NAME": None, "CPU_FEATURES": None,
}  # fmt: skip
NATIVE = IMAGE | {"CPU_NAME": None, "CPU_FEATURES": None}
OLD_CPU = [feature for feature in OF_LEVEL if feature != "avx2"]
KEPT = Path("/kept")

PROGRAM = """
import sys
from pathlib import Path
{before}
from protocol.kernel_folder import choose_kernel_folder
choose_kernel_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
import small
from protocol.kernel_cache import uncached_reason
print(small.doubled(21), sum(small.doubled.stats.cache_hits.values()), uncached_reason())
"""

COMPILED, CACHED = "42 0 \n", "42 1 \n"
"""The result, the hits of the cache, and no reason why there is no cache."""


def doubled(number: int) -> int:
    return number * 2


@pytest.mark.parametrize(
    ("settings", "folder", "features", "decided"),
    [
        (PLAIN, None, [], PLAIN),
        (PLAIN, KEPT, [], OF_FOLDER),
        (IMAGE, None, OF_LEVEL, IMAGE),
        (IMAGE, KEPT, OF_LEVEL, IMAGE),
        (IMAGE, None, OLD_CPU, NATIVE),
        (IMAGE, KEPT, OLD_CPU, OF_FOLDER),
        (NATIVE, KEPT, OLD_CPU, NATIVE),
    ],
)
def test_the_place_is_the_images_if_it_fits_the_cpu_else_that_of_cache_dir(
    settings: Mapping[str, Any], folder: Path | None, features: Sequence[str], decided: Mapping[str, Any]
) -> None:
    changed = dict(settings)
    KernelCache(changed, folder, features)
    assert changed == decided


class TestCompiling:
    def test_a_kernel_works_where_no_cache_can_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def reject(*_: object) -> None:
            raise RuntimeError("cannot cache function: no locator available")

        monkeypatch.setattr(Dispatcher, "enable_caching", reject)
        cache = KernelCache(dict(PLAIN), None, [])
        assert [cache.kernel(doubled, [types.int64])(21) for _ in range(2)] == [42, 42]
        assert cache.uncached_reason == "no folder for them can be written"

    def test_a_kernel_works_where_the_image_has_none_for_the_cpu(self) -> None:
        cache = KernelCache(dict(IMAGE), None, OLD_CPU)
        assert cache.kernel(doubled, [types.int64])(21) == 42
        assert cache.uncached_reason.endswith(f"{LEVEL}, and this one lacks avx2")

    def test_a_kernel_works_whose_cache_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "/image/doubled.nbi")

        monkeypatch.setattr(FunctionCache, "load_overload", load)
        cache = KernelCache(dict(PLAIN), None, [])
        assert cache.kernel(doubled, [types.int64])(21) == 42
        assert cache.uncached_reason == "/image/doubled.nbi: Permission denied"

    def test_a_kernel_works_that_cannot_be_kept_once_it_is_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def save(*_: object) -> None:
            raise OSError(28, "No space left on device", "/kept/doubled.nbi")

        monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: None)
        monkeypatch.setattr(FunctionCache, "save_overload", save)
        cache = KernelCache(dict(PLAIN), None, [])
        assert cache.kernel(doubled, [types.int64])(21) == 42
        assert cache.uncached_reason == "/kept/doubled.nbi: No space left on device"


def test_the_kernels_of_this_process_are_cached_or_a_reason_is_known() -> None:
    made = kernel(types.int64)(doubled)
    assert made(21) == 42
    assert bool(uncached_reason()) is not _CACHE._is_used


class Image:
    """A folder with a program of one kernel, and its cache for `LEVEL`, which nobody may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        (folder / "small.py").write_text(
            "from numba import types\nfrom protocol.kernel_cache import kernel\n"
            "@kernel(types.int64)\ndef doubled(number):\n    return number * 2\n"
        )
        self.cache.mkdir()
        self.environment = {
            "PYTHONPATH": f"{folder}:{ROOT}",
            "HOME": "/nonexistent",
            "NUMBA_CACHE_DIR": str(self.cache),
            "NUMBA_CPU_NAME": LEVEL,
            "NUMBA_CPU_FEATURES": "",
        }
        assert self.run() == COMPILED
        for path in (self.cache, *self.cache.iterdir()):
            path.chmod(0o555)
        self.environment["NUMBA_CACHE_LOCATOR_CLASSES"] = READ_ONLY

    def run(self, *arguments: str, before: str = "") -> str:
        """What the program prints. It is bound by the rights of files, even if it is root's."""
        bound = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
        result = subprocess.run(
            [*bound, sys.executable, "-c", PROGRAM.format(before=before), *arguments],
            env=self.environment, cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return result.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    lacking = [name for name in OF_LEVEL if name not in cpu_features()]
    if lacking:
        pytest.skip(f"this CPU is below {LEVEL}: it lacks {lacking}")
    return Image(tmp_path_factory.mktemp("image"))


class TestAnImageThatIsReadOnly:
    OLD = """
from numba.core import codegen
features = codegen.get_host_cpu_features().replace("+avx", "-avx")
codegen.get_host_cpu_features = lambda: features
"""

    def test_its_kernels_are_read(self, image: Image) -> None:
        assert image.run() == CACHED

    def test_numbas_own_locator_would_not_read_them(self, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(image.environment, "NUMBA_CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
        assert image.run() == "42 0 no folder for them can be written\n"

    def test_on_another_cpu_kernels_are_compiled_and_cached_in_the_folder_of_cache_dir(
        self, image: Image, tmp_path: Path
    ) -> None:
        folder = tmp_path / "cache"
        assert image.run(str(folder), before=self.OLD) == COMPILED
        assert image.run(str(folder), before=self.OLD) == CACHED
        assert sorted(path.suffix for path in folder.rglob("small.*")) == [".nbc", ".nbi"]

    def test_on_another_cpu_without_such_a_folder_each_start_compiles(self, image: Image) -> None:
        for _ in range(2):
            printed = image.run(before=self.OLD)
            assert printed.startswith("42 0 those of this installation are for a CPU of x86-64-v3")
            assert "this one lacks avx, avx2" in printed

    def test_a_folder_of_cache_dir_that_cannot_be_written_is_named(self, image: Image) -> None:
        printed = image.run(str(image.cache), before=self.OLD)
        assert printed == f"42 0 the folder {image.cache} of --cache-dir cannot be written\n"

    def test_a_kernel_that_the_image_lacks_is_compiled(self, image: Image) -> None:
        source = image.folder / "small.py"
        text = source.read_text()
        source.write_text(text + "# changed since it was compiled\n")
        try:
            printed = image.run()
        finally:
            source.write_text(text)
        assert printed.startswith(f"42 0 {image.cache}/")
        assert printed.endswith("Permission denied\n")
