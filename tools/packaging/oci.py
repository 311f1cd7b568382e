"""Images of the Open Container Initiative: layers from a folder, and the archive that container engines load.

Rule: equal files give equal bytes. Of a file only its name, its content and its being executable count; times, owners
and the order of names are given here.
Specification: OCI image-spec 1.1 (layer.md, config.md, manifest.md, image-layout.md).
"""

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tools.archives import unpack_tar

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
DEFAULT_REGISTRY = "docker.io"
"""What container engines put before a name without a registry."""
FILE_TIME = 1577836800
"""Modification time of every file, in seconds since 1970: 2020-01-01. So a layer changes only if its files do."""

Compress = Callable[[Path, Path], None]
"""Compresses a file by gzip into another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Owner and permissions of a path that differ from root's."""

    uid: int
    gid: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer: digests as `sha256:HEX`, sizes in bytes."""

    title: str
    path: Path
    digest: str
    byte_count: int
    content_digest: str
    """Digest of the archive before compression, the layer's `diff_id`."""
    content_byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image says of itself."""

    architecture: str
    created: str
    """Time as RFC 3339 has it."""
    config: Mapping[str, Any]
    """Of `config.md`: Entrypoint, Env, User, Labels and so on."""
    layers: Sequence[Layer]
    """The lowest first."""


@dataclass(slots=True)
class LayerWriter:
    """Writes layers of one folder, each with the paths that no layer before it had."""

    root: Path
    owners: Mapping[str, Owner]
    compress: Compress
    _written: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Of each path that has a layer, the kind of file, and the time and size that it had then; folders have neither."""

    def write(self, title: str, folder: Path) -> Layer:
        """Write the layer of all new paths into `folder`. Raises `ValueError` if a file of an earlier layer changed, or
        is gone."""
        paths = []
        found = paths_below(self.root)
        changed = self._written.keys() - set(found)
        for path in found:
            status = (self.root / path).lstat()
            kind = stat.S_IFMT(status.st_mode)
            state = (kind, 0, 0) if kind == stat.S_IFDIR else (kind, status.st_mtime_ns, status.st_size)
            if path not in self._written:
                paths.append(path)
                self._written[path] = state
            elif self._written[path] != state:
                changed.add(path)
        if changed:
            raise ValueError(
                f"{min(changed)} changed after its layer was written: the layers would not add up to the folder"
            )
        content, packed = folder / f"{len(self._written)}.tar", folder / f"{len(self._written)}.tar.gz"
        with content.open("wb") as stream:
            write_tar(self.root, paths, stream, self.owners)
        self.compress(content, packed)
        layer = Layer(
            title=title,
            path=packed,
            digest=_file_digest(packed),
            byte_count=packed.stat().st_size,
            content_digest=_file_digest(content),
            content_byte_count=content.stat().st_size,
        )
        content.unlink()
        return layer


def paths_below(root: Path) -> list[str]:
    """Paths of all files, links and folders below `root`, relative to it, a folder before what is in it."""
    found = []
    for folder, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in [*folders, *files]]
    return sorted(found, key=lambda path: path.split("/"))


def write_tar(root: Path, paths: Iterable[str], stream: io.BufferedIOBase, owners: Mapping[str, Owner]) -> None:
    """Write an archive of `paths` below `root`: by root, readable by everybody, writable by root, where `owners` has no
    other rule for a path.
    """
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            source = root / path
            entry = _entry(source, path, owners)
            if entry.isreg():
                with source.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)


def _entry(source: Path, path: str, owners: Mapping[str, Owner]) -> tarfile.TarInfo:
    status = source.lstat()
    entry = tarfile.TarInfo(path)
    entry.mtime = FILE_TIME
    if stat.S_ISDIR(status.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISLNK(status.st_mode):
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, str(source.readlink())
    elif stat.S_ISREG(status.st_mode):
        entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        entry.size = status.st_size
    else:
        raise ValueError(f"{source} is neither a file, nor a folder, nor a link: an image has no other kinds")
    owner = owners.get(path)
    if owner is not None:
        entry.uid, entry.gid, entry.mode = owner.uid, owner.gid, owner.mode
    return entry


def write_archive(destination: Path, image: Image, name: str, tag: str) -> str:
    """Write the archive of an image, which engines know as NAME:TAG. Returns the digest of its manifest.

    The archive is an image layout. For older engines (`docker load` before 25) it also has Docker's `manifest.json`.
    A file at `destination` is complete: what is unfinished has the ending `.partial`.
    """
    config = _json(_config(image))
    manifest = _json(_manifest(image, config))
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                **_descriptor(MANIFEST_TYPE, manifest),
                "platform": {"architecture": image.architecture, "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": f"{_full_name(name)}:{tag}",
                    "org.opencontainers.image.ref.name": tag,
                },
            }
        ],
    }
    docker = [
        {
            "Config": _blob(_digest(config)),
            "RepoTags": [f"{name}:{tag}"],
            "Layers": [_blob(layer.digest) for layer in image.layers],
        }
    ]
    files: dict[str, bytes | Path] = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json(docker),
        _blob(_digest(config)): config,
        _blob(_digest(manifest)): manifest,
        **{_blob(layer.digest): layer.path for layer in image.layers},
    }
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents[:-1]}
    partial = destination.with_name(f"{destination.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted([*files.items(), *((folder, None) for folder in folders)]):
            entry = tarfile.TarInfo(path)
            entry.mtime = FILE_TIME
            if content is None:  # some readers make no folders but those that are entries
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            elif isinstance(content, Path):
                entry.size = content.stat().st_size
                with content.open("rb") as stream:
                    archive.addfile(entry, stream)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    partial.replace(destination)
    return _digest(manifest)


def _full_name(name: str) -> str:
    """A name with its registry, as container engines complete it: a host has a dot or a port, or is `localhost`."""
    host, slash, _path = name.partition("/")
    if not slash:
        return f"{DEFAULT_REGISTRY}/library/{name}"
    return name if host == "localhost" or "." in host or ":" in host else f"{DEFAULT_REGISTRY}/{name}"


def unpack_archive(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the layers of an image's archive into `root`, which gets owners only if this process is root's. Returns
    the image's configuration. Raises `ValueError` if a blob, or a layer's content, has not the digest that is stated.

    For checks of what was built: layers that delete files of lower ones are unknown here.
    """
    with tarfile.open(archive) as files:
        (described,) = json.loads(_content(files, "index.json"))["manifests"]
        manifest = json.loads(_described(files, described))
        config: dict[str, Any] = json.loads(_described(files, manifest["config"]))
        for descriptor, content_digest in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            content = gzip.decompress(_described(files, descriptor))
            if _digest(content) != content_digest:
                raise ValueError(f"a layer of {files.name!r} has the content {_digest(content)}, not {content_digest}")
            with tarfile.open(fileobj=io.BytesIO(content)) as layer:
                unpack_tar(layer, root, "fully_trusted")
    return config


def _described(files: tarfile.TarFile, descriptor: Mapping[str, Any]) -> bytes:
    """The blob of a descriptor."""
    content = _content(files, _blob(descriptor["digest"]))
    found = (_digest(content), len(content))
    if found != (descriptor["digest"], descriptor["size"]):
        raise ValueError(f"a blob of {files.name!r} has the digest and size {found}, which its descriptor has not")
    return content


def _content(files: tarfile.TarFile, path: str) -> bytes:
    stream = files.extractfile(path)
    if stream is None:
        raise ValueError(f"{path} of {files.name!r} is no file")
    return stream.read()


def _config(image: Image) -> dict[str, Any]:
    return {
        "architecture": image.architecture,
        "os": "linux",
        "created": image.created,
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [layer.content_digest for layer in image.layers]},
        "history": [{"created": image.created, "created_by": layer.title} for layer in image.layers],
    }


def _manifest(image: Image, config: bytes) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, config),
        "layers": [
            {"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.byte_count} for layer in image.layers
        ],
    }


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
