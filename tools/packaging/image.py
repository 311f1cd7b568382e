"""The container image: `python3 -m tools.packaging.image [--name REPOSITORY]` writes it to `dist`.

It is an OCI archive for amd64. What lies in it say `deploy/image` and the lock files. Debian's packages come by
apt, libraries by uv, Penstock by its wheel; no container engine, registry or Dockerfile has a part in it, and no
package's script runs.

`--from COMMIT` builds the image of an older commit by this checkout's builder and description, for tests of upgrades.
`deploy/previous` names the commit of the release before.

Rule: the same commit gives the same digest. So everything that depends on the machine is done by the image's own Python
within its own files: compiling modules and kernels, and compressing.
"""

import argparse
import csv
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from tools.environment import UV_SETTINGS, ensure_uv
from tools.packaging import sbom
from tools.packaging.debian import DESCRIPTION, ensure_packages, read_lock, unpack
from tools.packaging.oci import Image, Layer, LayerWriter, Owner, write_archive
from tools.packaging.wheel import DIST, build_wheel
from tools.steps import ROOT, SetupFailed, cache_folder, main, report, run, say

ARCHITECTURE = "amd64"
MACHINES = ("x86_64", "AMD64")
NAME = "penstock"
FILES = DESCRIPTION.parent
CERTIFICATES = "usr/share/ca-certificates/mozilla"
_COMPONENT = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"([A-Za-z0-9.-]+(:[0-9]+)?/)?{_COMPONENT}(/{_COMPONENT})*")
"""Names of repositories, with or without their registry's host (OCI distribution-spec 1.1, "Pulling manifests")."""
COMPRESS = """
import sys, zlib
packer = zlib.compressobj(6, zlib.DEFLATED, 31)
while block := sys.stdin.buffer.read(1 << 20):
    sys.stdout.buffer.write(packer.compress(block))
sys.stdout.buffer.write(packer.flush())
"""
"""gzip without a name and a time; a library other than the image's would give other bytes."""
KERNELS = """
import importlib, sys
from penstock.application import find_packages
find_packages()
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
USES_KERNELS = re.compile(r"^from protocol\.kernel_cache import kernel$", re.MULTILINE)
PREVIOUS = ROOT / "deploy" / "previous"
"""The commit of the release before; a line that begins with `#` is a comment."""
UNKNOWN = "unknown"
"""The revision of sources without git."""
ADDRESS = re.compile(rb"at 0x[0-9a-f]+>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The state of the sources that an image is built from."""

    revision: str
    """Hash of the commit, with `-modified` if the checkout differs from it."""
    seconds: int
    """Its time, since 1970."""

    @property
    def time(self) -> str:
        """The time as RFC 3339 has it."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image's archive."""

    path: Path
    contents: Path
    """The list of what is in it, in SPDX."""
    digest: str
    layers: Sequence[Layer]


def build_image(folder: Path, name: str = NAME, source: Path = ROOT, *, is_older: bool = False) -> BuiltImage:
    """Build the image of a checkout into `folder`, under the repository `name`.

    `is_older`: its tag has the commit beside the version, since this checkout may have the same version.
    """
    if not REPOSITORY.fullmatch(name):
        raise SetupFailed(f"{name!r} is no repository, as registry.example/penstock is: small letters, and no tag")
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise SetupFailed("the image is built on Linux on x86-64 alone: its modules are compiled by its own Python")
    description = tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))
    commit = read_commit(source)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image-", dir=cache_folder()) as temporary:
        work = Path(temporary)
        root = work / "root"
        root.mkdir()
        writer = LayerWriter(root, owners(description["folders"]), lambda *files: _compress(root, *files))
        _add_debian(root, description)
        layers = [writer.write("Debian", work)]
        _add_libraries(root, work, description["libraries"], source)
        layers.append(writer.write("Libraries", work))
        version = _add_penstock(root, work, description, commit, source)
        layers.append(writer.write("Penstock", work))
        image = Image(
            architecture=ARCHITECTURE,
            created=commit.time,
            config=config(description["config"], version, commit),
            layers=layers,
        )
        folder.mkdir(parents=True, exist_ok=True)
        tag = f"{version}-{commit.revision[:12]}" if is_older else version
        path = folder / f"{NAME}-{tag}-{ARCHITECTURE}.oci.tar"
        contents = folder / f"{NAME}-{tag}-{ARCHITECTURE}.spdx.json"
        path.unlink(missing_ok=True)  # the list of contents is never beside the archive of another build
        contents.write_bytes((root / description["penstock"]["documents"] / sbom.FILE).read_bytes())
        digest = write_archive(path, image, name, tag)
    return BuiltImage(path=path, contents=contents, digest=digest, layers=layers)


def build_older_image(folder: Path, commit: str, name: str = NAME, repository: Path = ROOT) -> BuiltImage:
    """Build the image of an older commit of `repository` into `folder`, with the tag VERSION-COMMIT.

    Raises `SetupFailed` where git has no such commit.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="commit-", dir=cache_folder()) as temporary:
        source = Path(temporary) / "source"
        try:
            _git(repository, "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(source))
            _git(source, "checkout", "--quiet", "--detach", commit)
        except subprocess.CalledProcessError as error:
            raise SetupFailed(
                f"{error.stderr.strip()}\ngit cannot check out {commit!r} of {repository}: a shallow clone lacks older "
                "commits, which `git fetch --unshallow` brings"
            ) from error
        return build_image(folder, name, source, is_older=True)


def previous_commit() -> str:
    """The commit that `deploy/previous` names."""
    lines = PREVIOUS.read_text(encoding="utf-8").splitlines()
    (commit,) = (line for line in lines if line and not line.startswith("#"))
    return commit


def read_commit(source: Path) -> Commit:
    """The commit of a checkout. Sources without git need `SOURCE_DATE_EPOCH`, their time in seconds since 1970."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is not None and not epoch.isdecimal():
        raise SetupFailed(f"SOURCE_DATE_EPOCH is {epoch!r}, which is no count of seconds since 1970")
    try:
        revision, seconds = _git(source, "log", "-1", "--format=%H %ct").split()
        # Against a user's own settings: the wheel also has files that those hide.
        changes = _git(source, "-c", "core.excludesFile=", "status", "--porcelain", "--untracked-files=normal")
    except (OSError, subprocess.CalledProcessError) as error:
        if epoch is None:
            reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
            raise SetupFailed(
                f"git knows no commit of {source} ({reason}): mend that, or set SOURCE_DATE_EPOCH to the sources' time"
            ) from error
        return Commit(revision=UNKNOWN, seconds=int(epoch))
    return Commit(revision=f"{revision}-modified" if changes else revision, seconds=int(seconds))


def owners(folders: Mapping[str, str]) -> dict[str, Owner]:
    """Owners of folders, each described as `UID:GID MODE` with an octal mode."""
    found = {}
    for path, text in folders.items():
        owner, mode = text.split()
        uid, gid = owner.split(":")
        found[path] = Owner(uid=int(uid), gid=int(gid), mode=int(mode, 8))
    return found


def config(description: Mapping[str, Any], version: str, commit: Commit) -> dict[str, Any]:
    """The image's configuration, as `config.md` of the specification has it."""
    return {
        "User": description["user"],
        "WorkingDir": description["workdir"],
        "Entrypoint": description["entrypoint"],
        "StopSignal": description["stop-signal"],
        "ExposedPorts": {port: {} for port in description["ports"]},
        "Env": [f"{name}={value}" for name, value in description["env"].items()],
        "Labels": {
            "org.opencontainers.image.created": commit.time,
            "org.opencontainers.image.description": "A Kafka-compatible broker over object storage",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": commit.revision,
            "org.opencontainers.image.title": "Penstock",
            "org.opencontainers.image.version": version,
        },
    }


def leave_out(folder: Path, patterns: Sequence[str]) -> None:
    """Remove what matches one of `patterns` below `folder`. A pattern without a match is an error: it is outdated."""
    for pattern in patterns:
        # glob does not find a link that leads nowhere.
        found = [folder / pattern] if (folder / pattern).is_symlink() else list(folder.glob(pattern))
        if not found:
            raise SetupFailed(f"nothing below {folder} matches {pattern!r}: remove it from {DESCRIPTION}")
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.exists() or path.is_symlink():  # else its folder matched before
                path.unlink()


def keep_only(folder: Path, patterns: Sequence[str]) -> None:
    """Remove all of `folder` that matches none of `patterns`. A pattern without a match is an error."""
    kept = set()
    for pattern in patterns:
        found = set(folder.glob(pattern))
        if not found:
            raise SetupFailed(f"nothing in {folder} matches {pattern!r}: correct it in {DESCRIPTION}")
        kept |= found
    for path in set(folder.iterdir()) - kept:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def correct_records(folder: Path) -> None:
    """Remove what is not in `folder` from its packages' lists of files. They have digests of commands, which name the
    Python of this machine."""
    for record in sorted(folder.glob("*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as file:
            kept = [line for line in csv.reader(file) if (folder / line[0]).exists()]
        with record.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(kept)


def run_inside(
    root: Path,
    command: Sequence[str],
    env: Mapping[str, str],
    source: BinaryIO | None = None,
    destination: BinaryIO | None = None,
) -> None:
    """Run a program of the image with the image's files alone. Raises `SetupFailed` with what it wrote to stderr.

    It reads `source` and writes `destination`, if they are given.
    """
    namespace = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    enter = [shutil.which("unshare") or "unshare", *namespace, f"--root={root}"]
    try:
        done = subprocess.run(
            [*enter, *command],
            env={"PYTHONHASHSEED": "0", **env},
            stdin=source or subprocess.DEVNULL,
            stdout=destination or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise SetupFailed(f"{enter[0]}, which runs the image's own Python, cannot be started: {error}") from error
    if done.returncode != 0:
        raise SetupFailed(
            f"{done.stderr.decode(errors='replace')}\n{' '.join(command[:4])} failed within the image. Without "
            "root this needs namespaces of users, which some systems forbid: run it as root there."
        )


def _add_debian(root: Path, description: Mapping[str, Any]) -> None:
    debian = description["debian"]
    packages = read_lock()
    if sorted(package.name for package in packages) != sorted(debian["packages"]):
        raise SetupFailed(f"{DESCRIPTION} names other packages than debian.lock: run python3 -m tools.packaging.debian")
    archives = ensure_packages(packages)
    # base-files is the first, whatever the lock's order: its links lead from /lib to /usr/lib.
    for package in sorted(packages, key=lambda package: (package.name != "base-files", package.name)):
        unpack(package, archives, root)
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(path.read_bytes() for path in sorted((root / CERTIFICATES).glob("*.crt"))))
    (root / "usr" / "lib" / "ssl").mkdir()
    (root / "usr" / "lib" / "ssl" / "cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    leave_out(root, [*debian["leave-out"], CERTIFICATES])
    shutil.copytree(FILES / "base", root, dirs_exist_ok=True)
    for folder in description["folders"]:
        (root / folder).mkdir(parents=True, exist_ok=True)
    _compile(root, "usr/lib/python3.13")


def _add_libraries(root: Path, work: Path, description: Mapping[str, Any], source: Path) -> None:
    folder = root / description["folder"]
    requirements = work / "requirements.txt"
    uv = ensure_uv()
    export: list[str | Path] = [uv, "export", "--project", source, "--frozen", "--no-emit-project"]
    run("libraries list", [*export, "--output-file", requirements], env=UV_SETTINGS)
    target = ["--python-version", description["python"], "--python-platform", description["platform"]]
    # Copies: a link would let the image's changes reach uv's cache.
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy", *target]
    run(
        "libraries",
        # In a folder without a pyproject.toml: its overrides have no hashes.
        [uv, "--directory", work, "pip", "install", *options, "--target", folder, "--requirements", requirements],
        env=UV_SETTINGS,
    )
    leave_out(folder, description["leave-out"])
    for part, patterns in description["only"].items():
        keep_only(folder / part, patterns)
    correct_records(folder)
    _compile(root, description["folder"])


def _add_penstock(root: Path, work: Path, description: Mapping[str, Any], commit: Commit, source: Path) -> str:
    """Add the packages of the wheel, kernels, licences and the list of contents. Returns Penstock's version."""
    libraries = description["libraries"]
    wheel = build_wheel(work, source)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root / libraries["folder"])
    shutil.copytree(FILES / "penstock", root, dirs_exist_ok=True)
    _compile(root, f"{libraries['folder']}/penstock")
    kernels = root / description["penstock"]["kernels"]
    kernels.mkdir(parents=True)
    env = {**description["config"]["env"], "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    modules = kernel_modules(root / libraries["folder"] / "penstock" / "app")
    run_inside(root, ["/usr/bin/python3.13", "-Bc", KERNELS, *modules], env)
    if not list(kernels.rglob("*.nbc")):
        raise SetupFailed(f"numba left no kernels in {kernels}")
    clear_addresses(kernels)
    documents = root / description["penstock"]["documents"]
    documents.mkdir(parents=True)
    shutil.copyfile(source / "LICENSE", documents / "LICENSE")
    shutil.copytree(FILES / "licenses", documents / "licenses")
    sbom.write(root, root / libraries["folder"], documents, libraries["license-texts"], commit.time)
    return wheel.name.split("-")[1]


def kernel_modules(app: Path) -> list[str]:
    """All modules below the folder of Penstock's packages that compile kernels when they are imported."""
    return sorted(
        ".".join(path.relative_to(app).with_suffix("").parts)
        for path in app.rglob("*.py")
        if USES_KERNELS.search(path.read_text(encoding="utf-8"))
    )


def clear_addresses(kernels: Path) -> None:
    """Replace by zeros the addresses of functions in numba's notes about compiled kernels: each process has others."""
    for path in sorted(kernels.rglob("*.nbc")):
        path.write_bytes(ADDRESS.sub(lambda found: b"at 0x" + b"0" * (len(found[0]) - 6) + b">", path.read_bytes()))


def _compile(root: Path, folder: str) -> None:
    """Compile the modules below a folder of the image. What is compiled counts whatever time its source has."""
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    run_inside(root, ["/usr/bin/python3.13", "-IBm", "compileall", *options, f"/{folder}"], {})


def _compress(root: Path, content: Path, packed: Path) -> None:
    with content.open("rb") as source, packed.open("wb") as destination:
        run_inside(root, ["/usr/bin/python3.13", "-IBc", COMPRESS], {}, source, destination)


def _git(source: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", source, *words], capture_output=True, text=True, check=True).stdout.strip()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--name", default=NAME, help="repository of the image, with the host of its registry")
    parser.add_argument("--from", dest="commit", help="build this older commit, into dist/older")
    options = parser.parse_args()
    if options.commit is None:
        image = build_image(DIST, options.name)
    else:
        image = build_older_image(DIST / "older", options.commit, options.name)
    for layer in image.layers:
        size = f"{layer.content_byte_count / 1e6:.0f} MB"
        say(f"  layer {layer.title:<22} {size:<14} {layer.byte_count / 1e6:.0f} MB compressed, {layer.digest}")
    report("image", image.digest[:14], image.path)
    say(image.digest)


if __name__ == "__main__":
    main(_main)
