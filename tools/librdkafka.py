"""librdkafka's test-runner, built from its sources, with the C and C++ compiler of the `ziglang` wheel.

Rule: nothing of the machine is linked but its C library, so that the same features are there everywhere: zlib and zstd
are built here, and what needs OpenSSL, Cyrus SASL or curl is left out. Needs make and bash.
"""

import hashlib
import os
import shutil
from pathlib import Path

from tools import pins
from tools.archives import unpack_npm, unpack_source_distribution
from tools.steps import SetupFailed, cache_folder, ensure, environment_folder, run

OPTIONS = (
    "--disable-ssl",
    "--disable-gssapi",
    "--disable-curl",
    "--disable-lz4-ext",
    "--disable-debug-symbols",
    "--disable-optimization",
    "--enable-zlib",
    "--enable-zstd",
)
LIBRARY_FLAGS = ("--CFLAGS=-O1", "--CXXFLAGS=-O1")
TEST_FLAGS = ("CFLAGS=-O0 -fPIC -I../src", "CXXFLAGS=-O0 -fPIC -I../src -I../src-cpp")
"""The tests are compiled once and run for seconds: not optimised they take a fifth of the time to compile."""
SETTINGS = ("MKL_NO_SELFCONTAINED_STATIC_LIB=y", "WITH_LDS=n")
"""Of the build: without the script for the linker, which names symbols that this build does not have."""
COMPILERS = {"cc": "cc -fno-sanitize=all -w", "c++": "c++ -fno-sanitize=all -w", "ar": "ar", "ranlib": "ranlib"}
"""Programs that the build calls, and what of zig stands in for each."""
KEPT = ("test-runner", "test.c", "TransactionProducerCli.java")
"""Of the tests: the program, the table of its tests, and a producer in Java that 0098 starts."""
ZSTD_DEFINES = ("-DXXH_NAMESPACE=ZSTD_", "-DZSTD_DISABLE_ASM", "-DZSTD_MULTITHREAD", "-DZSTD_NO_TRACE")


def librdkafka_folder() -> Path:
    """Where `ensure_librdkafka` puts sources and programs; its name changes with what they are made of."""
    sources = (pins.LIBRDKAFKA, pins.ZLIB, pins.ZSTD, pins.RAPIDJSON)
    pinned = repr((sources, OPTIONS, LIBRARY_FLAGS, TEST_FLAGS, SETTINGS, COMPILERS, KEPT))
    return cache_folder() / f"librdkafka-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}"


def ensure_librdkafka() -> Path:
    """Folder of librdkafka with its libraries in `src`, `src-cpp` and `tests/test-runner`."""
    return ensure("librdkafka's tests", librdkafka_folder(), _build)


def _build(folder: Path) -> None:
    work = cache_folder() / "librdkafka-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    unpack_npm(pins.LIBRDKAFKA, work / "npm")
    for pin, name in ((pins.ZLIB, "zlib"), (pins.ZSTD, "zstd")):
        unpack_npm(pin, work / name)
    unpack_source_distribution(pins.RAPIDJSON, work / "rapidjson")
    settings = _compilers(work / "bin")
    libraries, headers = work / "libraries", work / "headers"
    libraries.mkdir()
    shutil.copytree(work / "rapidjson" / "rapidjson" / "include", headers)
    zlib, zstd = work / "zlib" / "deps" / "zlib", work / "zstd" / "deps" / "zstd" / "lib"
    _library("z", list(zlib.glob("*.c")), libraries, settings, "-DHAVE_UNISTD_H")
    _library("zstd", list(zstd.glob("*/*.c")), libraries, settings, *ZSTD_DEFINES)
    for header in (zlib / "zlib.h", zlib / "zconf.h", *zstd.glob("*.h")):
        shutil.copy(header, headers)
    source = work / "npm" / "deps" / "librdkafka"
    options = [*OPTIONS, *LIBRARY_FLAGS, f"--CPPFLAGS=-I{headers}", f"--LDFLAGS=-L{libraries}"]
    run("librdkafka configure", ["bash", "-c", 'cd "$0" && ./configure "$@"', source, *options], env=settings)
    make = ["make", "--no-print-directory", f"-j{os.cpu_count() or 1}", *SETTINGS]
    run("librdkafka", [*make, "-C", source, "libs"], env=settings)
    run("librdkafka tests", [*make, "-C", source / "tests", *TEST_FLAGS, "test-runner"], env=settings)
    for place in ("src", "src-cpp", "tests", "tests/java"):
        _keep(source / place, folder / place)
    shutil.rmtree(work)


def _compilers(folder: Path) -> dict[str, str]:
    """Writes the programs of `COMPILERS`; returns an environment in which they are found first."""
    zigs = list(environment_folder().glob("lib/python3*/site-packages/ziglang/zig"))
    if not zigs:
        raise SetupFailed("the test group lacks ziglang: run python3 -m tools.environment test")
    folder.mkdir()
    for name, words in COMPILERS.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zigs[0]}" {words} "$@"\n')
        program.chmod(0o755)
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "CC": "cc",
        "CXX": "c++",
        "ZIG_GLOBAL_CACHE_DIR": str(cache_folder() / "zig"),
    }


def _library(name: str, sources: list[Path], libraries: Path, settings: dict[str, str], *defines: str) -> None:
    """Builds a static library of C sources."""
    objects = libraries / name
    objects.mkdir()
    compile_all = 'cd "$0" && cc -c -O1 -fPIC -std=gnu11 "$@" && ar rcs "../lib$(basename "$0").a" *.o'
    run(f"library {name}", ["bash", "-c", compile_all, objects, *defines, *sources], env=settings)


def _keep(source: Path, place: Path) -> None:
    """Copies what a run needs: libraries, the schema of statistics, and `KEPT`."""
    place.mkdir()
    for path in source.iterdir():
        is_library = ".so" in path.name and "-dbg" not in path.name
        if is_library or path.suffix == ".json" or path.name in KEPT:
            shutil.copy(path, place, follow_symlinks=True)
