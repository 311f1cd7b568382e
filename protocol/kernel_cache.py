"""The source of compiled kernels: a cache of numba that holds them, or a compilation now, which is cached if possible.

The cache's folder is the first of these that applies:
1. An image's own: NUMBA_CACHE_DIR, with NUMBA_CACHE_LOCATOR_CLASSES=protocol.kernel_cache.ReadOnlyLocator and, as
   NUMBA_CPU_NAME, the CPU that the image's kernels are compiled for. It is never written. If this machine's CPU lacks
   a feature of that one, kernels are compiled for this machine, and cached in the folder of `--cache-dir` or nowhere.
2. The folder of `--cache-dir`.
3. Numba's choice: NUMBA_CACHE_DIR, else beside the source, else in the user's cache.
Kernels without a cache work as well, but each start compiles them. `uncached_reason` is for the log then.

Rule: the import decides, before numba determines the CPU: modules with kernels import this one before they use numba.
Specification: numba's manual, "Environment variables"; CPUs: the x86-64 psABI, "Micro-architecture levels".
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import njit, types
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator
from numba.core.codegen import get_host_cpu_features

from protocol.kernel_folder import kernel_folder

R = TypeVar("R")
Kernel = Callable[..., R]

_FEATURES: Final[Mapping[str, str]] = {
    "x86-64-v3": "cx16 sahf popcnt sse3 ssse3 sse4.1 sse4.2 avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
}
"""The features of the CPUs that images are compiled for, by LLVM's names."""


class ReadOnlyLocator(UserProvidedCacheLocator):
    """Finds compiled kernels in NUMBA_CACHE_DIR, which need not be writable: for numba's own locators it must be."""

    def ensure_cache_path(self) -> None:
        """Leave the folder as it is."""


class KernelCache:
    """The cache of this process's kernels."""

    def __init__(self, settings: dict[str, Any], folder: Path | None, features: Sequence[str]) -> None:
        """Choose the folder.

        settings: numba's (the names of `numba.core.config`), changed here. folder: that of `--cache-dir`, if any.
        features: those of this machine's CPU, by LLVM's names.
        """
        self.uncached_reason = ""
        """The reason why some kernel is not cached; empty if all are."""
        self._is_used = True
        self._reason = "no folder for them can be written"
        if ReadOnlyLocator.__name__ in settings["CACHE_LOCATOR_CLASSES"]:
            cpu = settings["CPU_NAME"]
            lacking = sorted({*_FEATURES.get(cpu, "").split()} - {*features})
            if not lacking:
                return
            self._reason = f"those of this installation are for a CPU of {cpu}, and this one lacks {', '.join(lacking)}"
            settings["CPU_NAME"] = settings["CPU_FEATURES"] = None
            self._is_used = folder is not None
        if folder is not None:
            settings["CACHE_DIR"] = str(folder)
            settings["CACHE_LOCATOR_CLASSES"] = UserProvidedCacheLocator.__name__  # there or nowhere
            self._reason = f"the folder {folder} of --cache-dir cannot be written"

    def kernel(self, function: Kernel[R], arguments: Sequence[types.Type]) -> Kernel[R]:
        """The kernel, from the cache or compiled now."""
        try:
            dispatcher = njit(nogil=True, cache=self._is_used)(function)
        except RuntimeError:  # numba finds no folder that it may write
            self._is_used = False
            dispatcher = njit(nogil=True)(function)
        try:
            dispatcher.compile(tuple(arguments))
        except OSError as error:  # of the cache: it cannot be read, or cannot be written after the compilation
            self.uncached_reason = f"{error.filename}: {error.strerror}"
            if not dispatcher.signatures:
                dispatcher = njit(nogil=True)(function)
                dispatcher.compile(tuple(arguments))
        dispatcher.disable_compile()
        if not self._is_used:
            self.uncached_reason = self._reason
        return cast("Kernel[R]", dispatcher)


def cpu_features() -> Sequence[str]:
    """The features of this machine's CPU, by LLVM's names."""
    text = cast("Callable[[], str]", get_host_cpu_features)()  # as `+avx2,-avx512f`
    return [feature[1:] for feature in text.split(",") if feature.startswith("+")]


_CACHE = KernelCache(config.__dict__, kernel_folder(), cpu_features())


def kernel(*arguments: types.Type) -> Callable[[Kernel[R]], Kernel[R]]:
    """Makes a kernel for arguments of these types, which frees the GIL: from the cache, or compiled now."""
    return lambda function: _CACHE.kernel(function, arguments)


def uncached_reason() -> str:
    """The reason why some kernel of this process is not cached; empty if all are."""
    return _CACHE.uncached_reason
