"""Debian's packages for the image: pinned by a lock file, fetched by apt, unpacked without dpkg or root.

    python3 -m tools.packaging.debian

writes the lock file again, with the newest versions: that is how the image gets Debian's security updates.

Rule: an archive is unpacked only if its SHA-256 is the one in the lock file. No script of a package runs.
Debian removes versions from its servers when newer ones come. `DEBIAN_SOURCES` names a file in the form of
sources.list(5) to use instead of this machine's servers, for example one of an archive of older states.
Specification: deb(5), sources.list(5).
"""

import hashlib
import io
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.archives import unpack_tar
from tools.steps import ROOT, SetupFailed, cache_folder, ensure, main, report, run

DESCRIPTION = ROOT / "deploy" / "image" / "image.toml"
LOCK = ROOT / "deploy" / "image" / "debian.lock"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHITECTURE = "amd64"
AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60
NEWER = (
    f"If a version is not found, Debian has a newer one: python3 -m tools.packaging.debian writes {LOCK.name} again. "
    "For the old one, name an archive of older states by DEBIAN_SOURCES."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A line of the lock file."""

    name: str
    version: str
    sha256: str


def read_lock(path: Path = LOCK) -> list[Package]:
    """The pinned packages, in the order in which they are unpacked."""
    packages = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.partition("#")[0].split()
        if fields and len(fields) != 3:
            raise SetupFailed(
                f"{path} has a line {line!r}, which is not NAME VERSION SHA256: run python3 -m tools.packaging.debian"
            )
        if fields:
            packages.append(Package(name=fields[0], version=fields[1], sha256=fields[2]))
    return packages


def ensure_packages(packages: Sequence[Package]) -> Path:
    """The folder with the archives of `packages`, each as NAME.deb."""
    names = "\n".join(f"{package.name} {package.version} {package.sha256}" for package in packages)
    place = cache_folder() / f"debian-{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def build(folder: Path) -> None:
        options = _updated(folder.with_name("debian-apt"))
        words = [f"{package.name}={package.version}" for package in packages]
        try:
            run("Debian packages", ["env", "--chdir", folder, "apt-get", *options, "download", *words], attempts=3)
        except SetupFailed as failure:
            raise SetupFailed(f"{failure}\n{NEWER}") from failure
        name_archives(folder, packages)

    return ensure("Debian packages", place, build)


def name_archives(folder: Path, packages: Sequence[Package]) -> None:
    """Rename the archives in `folder` to NAME.deb, by their SHA-256."""
    names = {package.sha256: package.name for package in packages}
    for archive in sorted(folder.iterdir()):
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        if sha256 not in names:
            raise SetupFailed(f"{archive.name} has the SHA-256 {sha256}, which {LOCK.name} does not have. {NEWER}")
        archive.rename(folder / f"{names.pop(sha256)}.deb")
    if names:
        raise SetupFailed(f"apt-get did not fetch {', '.join(names.values())}: run it again")


def unpack(package: Package, archives: Path, root: Path) -> None:
    """Unpack a package into `root`, and note it as scanners of images expect it: below var/lib/dpkg/status.d."""
    archive = archives / f"{package.name}.deb"
    content = archive.read_bytes()
    # Again, though it was checked when it was fetched: the cache folder outlives what wrote it.
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise SetupFailed(f"{archive} has changed since it was fetched: remove the folder {archives}, and run it again")
    members = dict(ar_members(content))
    with _tar(members, "data", package) as data:
        unpack_tar(data, root)
    notes = root / "var" / "lib" / "dpkg" / "status.d"
    notes.mkdir(parents=True, exist_ok=True)
    with _tar(members, "control", package) as control:
        files = {entry.name.removeprefix("./"): entry for entry in control if entry.isreg()}
        if "control" not in files:  # the list of contents would lack the package, and nothing would say so
            raise SetupFailed(f"the package {package.name} has no file control: run python3 -m tools.packaging.debian")
        for name, suffix in (("control", ""), ("md5sums", ".md5sums")):
            stream = control.extractfile(files[name]) if name in files else None
            if stream is not None:
                (notes / f"{package.name}{suffix}").write_bytes(stream.read())


def ar_members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an archive of ar(1), which a package is."""
    if not content.startswith(AR_MAGIC):
        raise SetupFailed(f"no package of Debian begins with {content[:8]!r}: remove its file and run it again")
    position = len(AR_MAGIC)
    while position < len(content):
        header = content[position : position + AR_HEADER_BYTES].decode("ascii")
        position += AR_HEADER_BYTES
        size = int(header[48:58])
        yield header[:16].rstrip().rstrip("/"), content[position : position + size]
        position += size + size % 2


def _tar(members: dict[str, bytes], name: str, package: Package) -> tarfile.TarFile:
    """The archive NAME.tar of a package, which is compressed by xz or gzip."""
    names = [member for member in members if member.startswith(f"{name}.tar")]
    if len(names) != 1 or names[0].rpartition(".")[2] not in ("tar", "xz", "gz"):
        raise SetupFailed(f"{package.name} has {names or 'no archive'} as {name}: xz and gzip can be unpacked")
    return tarfile.open(fileobj=io.BytesIO(members[names[0]]))


def write_lock() -> None:
    """Pin the newest versions of the packages that the image's description names."""
    description = tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))
    release, names = description["debian"]["release"], description["debian"]["packages"]
    options = _updated(cache_folder() / "debian-apt")
    text = _output(["apt-cache", *options, "show", "--no-all-versions", *names])
    found = {}
    for stanza in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if not line.startswith(" ") and ": " in line)
        found[fields["Package"]] = f"{fields['Package']} {fields['Version']} {fields['SHA256']}"
    lacking = sorted(set(names) - set(found))
    if lacking:
        raise SetupFailed(f"{release} has no package {', '.join(lacking)}: correct the list in {DESCRIPTION}")
    title = f"# Debian {release}: name, version and SHA-256 of packages. Written by python3 -m tools.packaging.debian."
    LOCK.write_text("\n".join([title, *(found[name] for name in sorted(found)), ""]), encoding="utf-8")
    report("Debian packages", "pinned", LOCK)


def _updated(folder: Path) -> list[str]:
    """Options by which apt knows Debian's release for the image, and keeps what it knows in `folder`."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text("")
    (folder / "sources.list").write_text(sources(), encoding="utf-8")
    settings = {
        "APT::Architecture": ARCHITECTURE,
        "APT::Sandbox::User": "root",
        # Else `update` succeeds without the lists that it could not get or verify, and old versions would be pinned.
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Dir::Cache": folder,
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("Debian index", ["apt-get", *options, "update"], attempts=3)
    return options


def sources() -> str:
    """The file of sources: that of `DEBIAN_SOURCES`, else the servers of this machine, with the image's release."""
    chosen = os.environ.get("DEBIAN_SOURCES")
    if chosen:
        return Path(chosen).read_text(encoding="utf-8")
    release = tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))["debian"]["release"]
    machine = _os_release()
    if machine.get("ID") != "debian" or not KEYRING.exists():
        raise SetupFailed(
            "The image consists of Debian's packages, and this machine is no Debian, or lacks the package "
            "debian-archive-keyring. DEBIAN_SOURCES=FILE names servers of Debian, as sources.list(5) says."
        )
    codename = machine.get("VERSION_CODENAME", "sid")
    form = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    targets = [line.split() for line in _output(form).splitlines()]
    servers = {suite: uri for suite, component, uri in reversed(targets) if component == "main"}
    lines = []
    for suite in ("", "-updates", "-security"):
        server = servers.get(f"{codename}{suite}")
        if server is not None:
            lines.append(f"deb [signed-by={KEYRING}] {server} {release}{suite} main\n")
        elif suite != "-updates":  # without the other two there would be no package, or no security update
            raise SetupFailed(
                f"apt of this machine has no server of {codename}{suite}: name some by DEBIAN_SOURCES=FILE"
            )
    return "".join(lines)


def _output(command: Sequence[str]) -> str:
    """What a command of apt writes to stdout."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise SetupFailed(
            f"{command[0]} is missing: the image is built where apt is, on Debian or beside it"
        ) from error
    except subprocess.CalledProcessError as error:
        raise SetupFailed(f"{error.stderr}\n{command[0]} failed with status {error.returncode}") from error


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


if __name__ == "__main__":
    main(write_lock)
