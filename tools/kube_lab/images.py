"""The images that nodes run, made without a registry: Penstock's, etcd's, and the one that holds a pod's namespaces.

containerd unpacks them once, into a store that is kept. Every node gets a copy of that store whose layers are links,
for these are never written: only containerd's databases differ between nodes.
"""

import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import pins
from tools.go_servers import etcd_program
from tools.kubernetes.kube_programs import pause_program
from tools.packaging.image import build_older_image, previous_commit
from tools.packaging.oci import Image, LayerWriter, write_archive
from tools.steps import ROOT, SetupFailed, cache_folder, ensure

PAUSE_IMAGE = "localhost/pause:1"
ETCD_IMAGE = f"quay.io/coreos/etcd:{pins.ETCD}"
"""The name that the chart's values have, so the lab installs the chart with its own defaults."""
EPOCH = "2020-01-01T00:00:00Z"
DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
BUILDER = (
    "deploy/image/**/*",
    "deploy/wheel/*",
    *(f"tools/{name}.py" for name in ("debian", "image", "oci", "sbom", "wheel")),
)
"""Files that decide what an image of a commit is."""

Import = Callable[[Path, Sequence[Path]], None]
"""Unpacks archives into containerd's store in a folder."""


@dataclass(frozen=True, slots=True)
class PenstockImage:
    """What an image's archive says of itself."""

    archive: Path
    tag: str
    version: str
    revision: str
    """The commit that it was built from."""


def find_image(dist: Path) -> PenstockImage:
    """The image that `make image` left in a folder. Raises `SetupFailed` if there is not exactly one."""
    archives = sorted(dist.glob("penstock-*.oci.tar"))
    if len(archives) != 1:
        raise SetupFailed(f"{dist} has {len(archives)} images of Penstock, and one is needed: run make image")
    return read_image(archives[0])


def read_image(archive: Path) -> PenstockImage:
    """What the labels of an image's archive say."""
    with tarfile.open(archive) as files:

        def content(path: str) -> bytes:
            stream = files.extractfile(path)
            if stream is None:
                raise SetupFailed(f"{path} of {archive} is no file: run make image again")
            return stream.read()

        (described,) = json.loads(content("manifest.json"))
        (reference,) = described["RepoTags"]
        labels = json.loads(content(described["Config"]))["config"]["Labels"]
    return PenstockImage(
        archive=archive.resolve(),
        tag=reference.rpartition(":")[2],
        version=labels["org.opencontainers.image.version"],
        revision=labels["org.opencontainers.image.revision"],
    )


def ensure_previous_image() -> PenstockImage:
    """The image of the commit that `deploy/previous` names, built once for each state of the builder.

    Raises `SetupFailed` where git has no such commit.
    """
    commit = previous_commit()
    builder = sorted(path for pattern in BUILDER for path in ROOT.glob(pattern) if path.is_file())
    parts = [commit, *(f"{path.relative_to(ROOT)} {_digest(path)}" for path in builder)]
    folder = cache_folder() / f"previous-image-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"

    def build(partial: Path) -> None:
        build_older_image(partial, commit)

    return find_image(ensure("image of the release before", folder, build))


def ensure_store(folder: Path, archives: Sequence[Path], unpack: Import) -> Path:
    """A store below `folder` with the images of `archives`, and with those of etcd and of the pause program.

    Stores of other images are removed: each has the size of all unpacked files.
    """
    names = [*(_digest(archive) for archive in archives), pins.ETCD, _digest(pause_program()), _digest(Path(__file__))]
    store = folder / hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    for outdated in folder.glob("*"):
        if outdated != store:
            shutil.rmtree(outdated)

    def build(partial: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            work = Path(temporary)
            small = [
                _write(work, "pause.tar", PAUSE_IMAGE, pause_program()),
                _write(work, "etcd.tar", ETCD_IMAGE, etcd_program()),
            ]
            unpack(partial, [*archives, *small])

    return ensure("images of the lab", store, build)


def copy_store(store: Path, destination: Path) -> None:
    """Make a store that has its own databases, and the files of another one. No containerd may run on that one."""
    shutil.copytree(store, destination, symlinks=True, copy_function=os.link, ignore=_layers)
    for database in DATABASES:
        (destination / database).unlink()
        shutil.copy2(store / database, destination / database)
    for layer in (store / LAYERS).iterdir():
        (destination / LAYERS / layer.name).symlink_to(layer)


def _layers(folder: str, names: Sequence[str]) -> Sequence[str]:
    """What `copytree` ignores: the folders of unpacked layers, with ten thousand files each."""
    return names if folder.endswith(LAYERS) else []


def _write(work: Path, file: str, reference: str, program: Path) -> Path:
    """An image with one program and nothing else, which is found by its name in /usr/bin."""
    root = work / f"{file}.root"
    (root / "usr" / "bin").mkdir(parents=True)
    shutil.copy2(program, root / "usr" / "bin")
    layer = LayerWriter(root, {}, _compress).write(program.name, work)
    config = {"Entrypoint": [f"/usr/bin/{program.name}"], "Env": ["PATH=/usr/bin"], "User": "10001:10001"}
    image = Image(architecture="amd64", created=EPOCH, config=config, layers=[layer])
    write_archive(work / file, image, *reference.rsplit(":", 1))
    return work / file


def _compress(content: Path, packed: Path) -> None:
    with content.open("rb") as source, gzip.GzipFile(packed, "wb", compresslevel=1, mtime=0) as target:
        shutil.copyfileobj(source, target)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
