"""An image of a newer version: this one's, with another version number, and a version of the rules that brings nothing.

What an upgrade does to a cluster follows from the rules that its two programs know (safety rule S3). There may be no
release with other rules to upgrade from, so the upgrade is to a version that is yet to come.
"""

import gzip
import json
import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tools.kube_lab.images import PenstockImage, read_image
from tools.packaging.oci import Image, Layer, LayerWriter, write_archive

VERSION_LABEL = "org.opencontainers.image.version"
NEWER_VERSION = "99.0.0"
CHANGES = {
    "coordinator/commands/rules.py": (r"^(RULES_NEWEST: Final\[int\] = \w+)$", r"\1 + 1"),
    "agent/runtime/version.py": (r'^VERSION = ".*"$', f'VERSION = "{NEWER_VERSION}"'),
}
"""By file: what is replaced, and by what."""


def write_newer_image(image: PenstockImage, destination: Path) -> PenstockImage:
    """Write the archive of a newer version of `image`: its layers, and one more with the files that differ."""
    with tarfile.open(image.archive) as files, tempfile.TemporaryDirectory(dir=destination.parent) as temporary:
        work = Path(temporary)
        files.extractall(work / "image", filter="fully_trusted")
        (described,) = json.loads((work / "image" / "manifest.json").read_text())
        config = json.loads((work / "image" / described["Config"]).read_text())
        layers = [
            _layer(work / "image" / path, content_digest)
            for path, content_digest in zip(described["Layers"], config["rootfs"]["diff_ids"], strict=True)
        ]
        _write_changed_files(layers[-1].path, work / "root")
        layers.append(LayerWriter(work / "root", {}, _compress).write("a newer version", work))
        config["config"]["Labels"][VERSION_LABEL] = NEWER_VERSION
        newer = Image(
            architecture=config["architecture"], created=config["created"], config=config["config"], layers=layers
        )
        (reference,) = described["RepoTags"]
        write_archive(destination, newer, reference.rpartition(":")[0], NEWER_VERSION)
    return read_image(destination)


def _layer(path: Path, content_digest: str) -> Layer:
    """A layer of the image as it is. Its size without compression is not written to an archive."""
    return Layer(
        title="of the older version",
        path=path,
        digest=f"sha256:{path.name}",
        byte_count=path.stat().st_size,
        content_digest=content_digest,
        content_byte_count=0,
    )


def _write_changed_files(layer: Path, root: Path) -> None:
    """Write what changes of a layer's files, and marks that remove their compiled form (OCI layer.md, whiteouts)."""
    with tarfile.open(layer) as files:
        for name, (pattern, replacement) in CHANGES.items():
            (entry,) = (entry for entry in files.getmembers() if entry.name.endswith(f"/penstock/app/{name}"))
            source: Any = files.extractfile(entry)
            text, count = re.subn(pattern, replacement, source.read().decode(), flags=re.MULTILINE)
            assert count == 1, f"{name} has {count} lines like {pattern}"
            path = root / entry.name
            (path.parent / "__pycache__").mkdir(parents=True)
            path.write_text(text)
            compiled = str(Path(entry.name).parent / "__pycache__" / path.stem)
            for each in files.getnames():
                if each.startswith(f"{compiled}."):
                    (path.parent / "__pycache__" / f".wh.{Path(each).name}").touch()


def _compress(content: Path, packed: Path) -> None:
    with content.open("rb") as source, gzip.GzipFile(packed, "wb", compresslevel=1, mtime=0) as target:
        shutil.copyfileobj(source, target)
