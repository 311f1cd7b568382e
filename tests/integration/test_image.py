"""The image, built and run: without a shell, by any user, with a read-only root, and the same bytes from each clone."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.runtime.version import VERSION
from tests.support.services.local_services import Penstock, PenstockFactory
from tools.kube_lab.images import read_image
from tools.packaging.image import BuiltImage, build_image, build_older_image, previous_commit
from tools.packaging.oci import unpack_archive
from tools.steps import ROOT

BUILD_SECONDS_MAX = 1800
pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_SECONDS_MAX)]
"""Each test may be the first one, which builds."""
DATA = Path("/var/lib/penstock/data")
UNPACKED_BYTES_MAX = 560_000_000
READY_CPU_SECONDS_MAX = 3.0
RECORDS = 2_000
SHELLS = {"sh", "bash", "dash", "ash", "busybox", "zsh", "perl", "apt", "apt-get", "dpkg", "pip", "uv"}
ENTER = """
root=$1 data=$2 uid=$3; shift 3
mount --bind "$root" "$root" && mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" || exit
mount -t tmpfs tmpfs "$root/tmp" && mount --bind "$data" "$root/var/lib/penstock" || exit
mount -o remount,bind,ro "$root" || exit
exec setpriv --no-new-privs chroot --userspec="$uid:$uid" --groups= "$root" "$@"
"""
"""Runs a program with the image's files, which it cannot change, as another user without any capability. It stays one
process, so that signals reach the program itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """An image's files in a folder, and its configuration."""

    root: Path
    config: dict[str, Any]

    def program(self, data: Path, uid: int, *command: str) -> list[str | Path]:
        """The command line that runs a program of the image, by default its entry point."""
        data.mkdir(exist_ok=True)
        os.chown(data, uid, uid)
        words = command or self.config["Entrypoint"]
        shell = ["sh", "-euc", ENTER, "enter", self.root, data, str(uid), "/usr/bin/python3.13", "-c"]
        # The image's environment alone: nothing of this process's own.
        start = (
            "import os, sys; os.chdir('/tmp'); os.execve(sys.argv[1], sys.argv[1:], dict(w.split('=', 1) for w in %r))"
        )
        return ["unshare", "--mount", *shell, start % (self.config["Env"],), *words]

    def run(self, data: Path, uid: int, *command: str) -> str:
        done = subprocess.run(
            self.program(data, uid, *command), capture_output=True, text=True, check=False, timeout=150
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def clone(folder: Path) -> Path:
    """A clone of the checkout's last commit."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltImage:
    folder = tmp_path_factory.mktemp("image")
    return build_image(folder / "dist", source=clone(folder / "first-clone"))


@pytest.fixture(scope="module")
def image(built: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    if os.geteuid() != 0:
        pytest.skip("only root can take another user and a root of its own")
    root = tmp_path_factory.mktemp("unpacked")
    root.chmod(0o755)
    yield Unpacked(root=root, config=unpack_archive(built.path, root)["config"])
    subprocess.run(["rm", "-rf", root], check=True)


def test_the_same_commit_gives_the_same_digest(built: BuiltImage, tmp_path: Path) -> None:
    again = build_image(tmp_path / "dist", source=clone(tmp_path / "second-clone"))
    assert [layer.content_digest for layer in again.layers] == [layer.content_digest for layer in built.layers]
    assert again.digest == built.digest
    assert again.path.read_bytes() == built.path.read_bytes()


def test_the_image_of_the_release_before_has_a_tag_of_its_own(built: BuiltImage, tmp_path: Path) -> None:
    older = read_image(build_older_image(tmp_path / "dist", previous_commit()).path)
    assert older.tag == f"{older.version}-{older.revision[:12]}"
    assert older.tag != read_image(built.path).tag
    assert older.revision == previous_commit()


def test_nothing_in_the_image_runs_commands_or_raises_rights(image: Unpacked) -> None:
    files = [path for path in image.root.rglob("*") if path.is_file() or path.is_symlink()]
    assert not [path for path in files if path.name in SHELLS and os.access(path, os.X_OK) and path.is_file()]
    assert not [path for path in files if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    writable = [path for path in image.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH]
    assert sorted(str(path.relative_to(image.root)) for path in writable) == ["tmp", "var/tmp"]
    programs = {path.name for path in (image.root / "usr" / "bin").iterdir()}
    assert programs == {"penstock", "python3.13"}


def test_the_image_is_no_larger_than_it_was(built: BuiltImage) -> None:
    assert sum(layer.content_byte_count for layer in built.layers) <= UNPACKED_BYTES_MAX
    penstock = built.layers[-1]
    assert penstock.byte_count < 10_000_000, "an upgrade downloads this layer"


@pytest.mark.parametrize("uid", [10001, 54321])
def test_any_user_runs_it_on_a_read_only_root(
    uid: int, image: Unpacked, penstock: PenstockFactory, tmp_path: Path
) -> None:
    broker = start(image, penstock, tmp_path / "data", uid)
    assert cpu_seconds(broker) <= READY_CPU_SECONDS_MAX
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    with pytest.raises(OSError, match="Read-only file system"):
        (Path(f"/proc/{broker.process.pid}/root") / "usr" / "new").touch()


def test_records_are_written_and_read_by_the_image_alone(
    image: Unpacked, penstock: PenstockFactory, tmp_path: Path
) -> None:
    broker = start(image, penstock, tmp_path / "data", 54321)
    client = tmp_path / "client"
    command = [*image.config["Entrypoint"], "produce", "--bootstrap", broker.bootstrap, "orders"]
    lines = "".join(f"record {index}\n" for index in range(RECORDS))
    done = subprocess.run(
        image.program(client, 54321, *command), input=lines, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr
    read = image.run(client, 54321, *image.config["Entrypoint"], "consume", "--bootstrap", broker.bootstrap, "orders")
    assert read.splitlines() == lines.splitlines()


def test_doctor_finds_nothing_wrong(image: Unpacked, tmp_path: Path) -> None:
    assert image.run(tmp_path / "data", 54321, *image.config["Entrypoint"], "--version") == f"penstock {VERSION}\n"
    found = image.run(tmp_path / "data", 54321, *image.config["Entrypoint"], "doctor", "--data-dir", str(DATA))
    assert "error" not in found.lower()


def test_kernels_of_the_image_are_read_and_not_compiled(image: Unpacked, tmp_path: Path) -> None:
    look = (
        "from penstock.application import find_packages; find_packages()\n"
        "import importlib, sys\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "from protocol.kernel_cache import uncached_reason\n"
        "found = [value for name in sys.argv[1:] for value in vars(importlib.import_module(name)).values()"
        " if isinstance(value, Dispatcher) and value.signatures]\n"
        "assert found and not uncached_reason(), uncached_reason()\n"
        "print({(sum(each.stats.cache_hits.values()) > 0, sum(each.stats.cache_misses.values())) for each in found})\n"
    )
    names = ["iceberg_export.rows.gather_kernel", "iceberg_export.typed.avro_kernels", "protocol.records.kernels"]
    assert image.run(tmp_path / "data", 54321, "/usr/bin/python3.13", "-c", look, *names) == "{(True, 0)}\n"


def test_libraries_find_certificates_and_all_their_parts(image: Unpacked, tmp_path: Path) -> None:
    look = (
        "import importlib, pathlib, ssl, sys, zoneinfo\n"
        "assert ssl.create_default_context().cert_store_stats()['x509_ca'] > 100\n"
        "zoneinfo.ZoneInfo('Europe/Paris')\n"
        "for path in pathlib.Path('/usr/lib/python3.13/lib-dynload').iterdir():\n"
        "    importlib.import_module(path.name.partition('.')[0])\n"
        "import botocore.session, cryptography.x509, grpc, grpc_tools._protoc_compiler, obstore, pyarrow.dataset\n"
        "import pyarrow.parquet, pyarrow.fs, uvloop\n"
        "botocore.session.Session().create_client('sts', region_name='eu-west-1')\n"
    )
    image.run(tmp_path / "data", 54321, "/usr/bin/python3.13", "-c", look)


def test_licences_and_the_list_of_contents_are_inside(built: BuiltImage, image: Unpacked) -> None:
    documents = image.root / "usr" / "share" / "doc" / "penstock"
    assert (documents / "sbom.spdx.json").read_bytes() == built.path.with_name(
        f"penstock-{VERSION}-amd64.spdx.json"
    ).read_bytes()
    listed = re.findall(r"^    (/.+)$", (documents / "LICENSES").read_text(), re.MULTILINE)
    assert len(listed) > 60
    assert not [path for path in listed if not (image.root / path.lstrip("/")).is_file()]


def start(image: Unpacked, penstock: PenstockFactory, data: Path, uid: int) -> Penstock:
    return penstock(data=DATA, program=image.program(data, uid))


def cpu_seconds(broker: Penstock) -> float:
    """Seconds of processor time that a broker has taken."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
