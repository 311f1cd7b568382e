"""librdkafka's test-runner, built from its sources, around the library that its makers publish for Python.

Rule: the client under test is the program that users have, with TLS, SASL and OIDC. Its own tests, and its C++
interface, are built here, with the C and C++ compiler of the `ziglang` wheel: nothing of the machine is linked but its
C library. Needs make and bash.
"""

import hashlib
import os
import platform
import shutil
from pathlib import Path

from tools import pins
from tools.archives import unpack_npm, unpack_source_distribution, unpack_wheel
from tools.steps import SetupFailed, cache_folder, ensure, environment_folder, run

OPTIONS = (
    "--disable-ssl",
    "--disable-gssapi",
    "--disable-curl",
    "--disable-zlib",
    "--disable-zstd",
    "--disable-lz4-ext",
    "--disable-debug-symbols",
    "--disable-optimization",
)
"""What is built here needs no library of another project; the published one has them inside."""
TEST_FLAGS = ("CFLAGS=-O0 -fPIC -I../src", "CXXFLAGS=-O0 -fPIC -I../src -I../src-cpp")
"""The tests are compiled once and run for seconds: not optimised they take a fifth of the time to compile."""
FEATURES = "-DWITH_ZLIB=1 -DWITH_ZSTD=1 -DWITH_SSL=1 -DWITH_SASL_OAUTHBEARER=1"
"""Of the published library, as the headers of its build would say."""
ASKING = ("0017-compression", "0022-consume_batch", "0052-msg_timestamps", "0077-compaction", "0081-admin")
"""Tests that leave something out unless a feature is defined, and include no header that would then need OpenSSL's."""
SETTINGS = ("MKL_NO_SELFCONTAINED_STATIC_LIB=y", "WITH_LDS=n")
COMPILERS = {"cc": "cc -fno-sanitize=all -w", "c++": "c++ -fno-sanitize=all -w", "ar": "ar", "ranlib": "ranlib"}
"""Programs that the build calls, and what of zig stands in for each."""
KEPT = ("test-runner", "test.c", "TransactionProducerCli.java", "statistics_schema.json")
"""The program, the table of its tests, a producer in Java that 0098 starts, and what 0053 holds statistics against."""


def librdkafka_folder() -> Path:
    """Where `ensure_librdkafka` puts sources and programs; its name changes with what they are made of."""
    sources = (pins.LIBRDKAFKA, pins.LIBRDKAFKA_WHEELS, pins.RAPIDJSON)
    pinned = repr((sources, OPTIONS, TEST_FLAGS, FEATURES, ASKING, SETTINGS, COMPILERS, KEPT))
    return cache_folder() / f"librdkafka-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}"


def ensure_librdkafka() -> Path:
    """Folder of librdkafka: the library in `src`, the program `tests/test-runner`, and files that its tests read."""
    return ensure("librdkafka's tests", librdkafka_folder(), _build)


def _build(folder: Path) -> None:
    wheel = pins.LIBRDKAFKA_WHEELS.get(platform.machine())
    if wheel is None:
        raise SetupFailed(f"librdkafka's makers publish no library for {platform.machine()} that tools/pins.py names")
    work = cache_folder() / "librdkafka-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    unpack_npm(pins.LIBRDKAFKA, work / "npm")
    unpack_wheel(wheel, work / "wheel")
    unpack_source_distribution(pins.RAPIDJSON, work / "rapidjson")
    settings = _compilers(work / "bin")
    source, headers = work / "npm" / "deps" / "librdkafka", work / "rapidjson" / "rapidjson" / "include"
    (library,) = work.glob("wheel/confluent_kafka.libs/librdkafka-*.so.*")
    shutil.copy(library, source / "src")
    (source / "src" / "librdkafka.so").symlink_to(library.name)
    (source / "src" / "librdkafka.a").touch()  # the tests' Makefile asks for it; the linker takes the shared one
    options = [*OPTIONS, f"--CPPFLAGS=-I{headers}"]
    run("librdkafka configure", ["bash", "-c", 'cd "$0" && ./configure "$@"', source, *options], env=settings)
    make: list[str | Path] = ["make", "--no-print-directory", f"-j{os.cpu_count() or 1}", *SETTINGS]
    run("librdkafka C++", [*make, "-C", source / "src-cpp", "librdkafka++.a"], env=settings)
    in_tests: list[str | Path] = [*make, "-C", source / "tests", TEST_FLAGS[1]]
    asking = [f"{name}.o" for name in ASKING]
    run("librdkafka features", [*in_tests, f"{TEST_FLAGS[0]} {FEATURES}", *asking], env=settings)
    run("librdkafka tests", [*in_tests, TEST_FLAGS[0], "test-runner"], env=settings)
    for place in ("src", "tests", "tests/java"):
        _keep(source / place, folder / place)
    shutil.copy(library, folder / "src")
    shutil.copytree(source / "tests" / "fixtures", folder / "tests" / "fixtures")
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


def _keep(source: Path, place: Path) -> None:
    """Copies what a run needs: `KEPT`."""
    place.mkdir()
    for path in source.iterdir():
        if path.name in KEPT:
            shutil.copy(path, place)
