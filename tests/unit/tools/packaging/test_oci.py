"""The writer of images: equal files give equal bytes, each layer has what is new, and the archive is a valid layout."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.packaging.oci import (
    FILE_TIME,
    Image,
    Layer,
    LayerWriter,
    Owner,
    paths_below,
    unpack_archive,
    write_archive,
    write_tar,
)


def compress(content: Path, packed: Path) -> None:
    packed.write_bytes(gzip.compress(content.read_bytes(), mtime=0))


def tree(root: Path) -> Path:
    """A folder with each kind of file that an image may have."""
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "program").write_bytes(b"\x7fELF")
    (root / "usr" / "bin" / "program").chmod(0o700)
    (root / "usr" / "text").write_text("text")
    (root / "usr" / "text").chmod(0o600)
    (root / "usr-data").write_text("data")
    (root / "bin").symlink_to("usr/bin")
    (root / "tmp").mkdir(mode=0o700)
    return root


def entries(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {entry.name: entry for entry in archive}


def packed(root: Path, owners: dict[str, Owner] | None = None) -> bytes:
    stream = io.BytesIO()
    write_tar(root, paths_below(root), stream, owners or {})
    return stream.getvalue()


def test_a_folder_comes_before_what_is_in_it(tmp_path: Path) -> None:
    paths = ["bin", "tmp", "usr", "usr/bin", "usr/bin/program", "usr/text", "usr-data"]
    assert paths_below(tree(tmp_path)) == paths
    assert list(entries(packed(tmp_path))) == paths


def test_times_owners_and_permissions_do_not_depend_on_the_machine(tmp_path: Path) -> None:
    first, second = tree(tmp_path / "first"), tree(tmp_path / "second")
    for path in second.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (second / "usr" / "text").chmod(0o444)
    assert packed(first) == packed(second)
    found = entries(packed(first))
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in found.values()} == {(0, 0, "", FILE_TIME)}
    modes = {"bin": 0o777, "usr": 0o755, "usr/bin/program": 0o755, "usr/text": 0o644}
    assert {name: found[name].mode for name in modes} == modes
    assert found["bin"].issym()
    assert found["bin"].linkname == "usr/bin"


def test_a_path_with_an_owner_gets_that_owner(tmp_path: Path) -> None:
    entry = entries(packed(tree(tmp_path), {"tmp": Owner(uid=7, gid=8, mode=0o1777)}))["tmp"]
    assert (entry.uid, entry.gid, entry.mode) == (7, 8, 0o1777)


def test_a_file_of_another_kind_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is neither a file"):
        packed(tmp_path)


@pytest.fixture
def layers(tmp_path: Path) -> list[Layer]:
    """Two layers: the second has the one file that was added after the first."""
    root, work = tree(tmp_path / "root"), tmp_path / "work"
    work.mkdir()
    writer = LayerWriter(root, {}, compress)
    first = writer.write("first", work)
    (root / "usr" / "new").write_text("new")
    return [first, writer.write("second", work)]


def test_a_layer_has_what_no_layer_before_it_had(layers: list[Layer]) -> None:
    contents = [gzip.decompress(layer.path.read_bytes()) for layer in layers]
    assert list(entries(contents[1])) == ["usr/new"]
    for layer, content in zip(layers, contents, strict=True):
        assert layer.content_byte_count == len(content)
        assert layer.content_digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert layer.byte_count == layer.path.stat().st_size
        assert layer.digest == f"sha256:{hashlib.sha256(layer.path.read_bytes()).hexdigest()}"


def test_a_file_of_a_lower_layer_must_not_change(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    writer = LayerWriter(root, {}, compress)
    writer.write("first", tmp_path)
    (root / "usr" / "text").write_text("another text")
    with pytest.raises(ValueError, match="usr/text changed after its layer was written"):
        writer.write("second", tmp_path)


def test_a_file_of_a_lower_layer_must_not_vanish(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    writer = LayerWriter(root, {}, compress)
    writer.write("first", tmp_path)
    (root / "usr" / "text").unlink()
    with pytest.raises(ValueError, match="usr/text changed after its layer was written"):
        writer.write("second", tmp_path)


def test_a_file_of_a_lower_layer_must_not_become_a_folder(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    writer = LayerWriter(root, {}, compress)
    writer.write("first", tmp_path)
    (root / "usr" / "text").unlink()
    (root / "usr" / "text").mkdir()
    with pytest.raises(ValueError, match="usr/text changed after its layer was written"):
        writer.write("second", tmp_path)


def archived(layers: list[Layer], folder: Path, name: str = "penstock") -> tuple[str, dict[str, bytes]]:
    """Digest of the manifest, and the files of the archive."""
    image = Image(architecture="amd64", created="2026-01-02T03:04:05Z", config={"User": "1:1"}, layers=layers)
    digest = write_archive(folder / "image.tar", image, name, "1.2.3")
    with tarfile.open(folder / "image.tar") as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return digest, {path: stream.read() for path, stream in files.items() if stream is not None}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, whose size and digest it must have."""
    kind, _, digest = descriptor["digest"].partition(":")
    content = files[f"blobs/{kind}/{digest}"]
    assert (len(content), hashlib.sha256(content).hexdigest()) == (descriptor["size"], digest)
    return content


def test_a_folder_of_the_archive_comes_before_its_files(layers: list[Layer], tmp_path: Path) -> None:
    archived(layers, tmp_path)
    with tarfile.open(tmp_path / "image.tar") as archive:
        entries = archive.getmembers()
    folders = [entry.name for entry in entries if entry.isdir()]
    assert folders == ["blobs", "blobs/sha256"]
    assert [entry.name for entry in entries][:2] == folders


def test_the_archive_is_an_image_layout(layers: list[Layer], tmp_path: Path) -> None:
    digest, files = archived(layers, tmp_path)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["digest"] == digest
    assert described["platform"] == {"architecture": "amd64", "os": "linux"}
    manifest = json.loads(blob(files, described))
    config = json.loads(blob(files, manifest["config"]))
    assert config["config"] == {"User": "1:1"}
    assert config["created"] == "2026-01-02T03:04:05Z"
    assert [row["created_by"] for row in config["history"]] == ["first", "second"]
    contents = [gzip.decompress(blob(files, descriptor)) for descriptor in manifest["layers"]]
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    assert config["rootfs"] == {"type": "layers", "diff_ids": digests}
    assert set(files) == {
        "oci-layout",
        "index.json",
        "manifest.json",
        *(f"blobs/{part['digest'].replace(':', '/')}" for part in [described, manifest["config"], *manifest["layers"]]),
    }


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("penstock", "docker.io/library/penstock:1.2.3"),
        ("registry.example/a/penstock", "registry.example/a/penstock:1.2.3"),
        ("registry:5000/penstock", "registry:5000/penstock:1.2.3"),
        ("localhost/penstock", "localhost/penstock:1.2.3"),
        ("owner/penstock", "docker.io/owner/penstock:1.2.3"),
    ],
)
def test_engines_find_the_image_by_its_name(name: str, reference: str, layers: list[Layer], tmp_path: Path) -> None:
    _digest, files = archived(layers, tmp_path, name)
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == reference
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == [f"{name}:1.2.3"]
    assert set(docker["Layers"]) | {docker["Config"]} <= set(files)


def test_equal_layers_give_an_equal_archive(layers: list[Layer], tmp_path: Path) -> None:
    archived(layers, tmp_path)
    first = (tmp_path / "image.tar").read_bytes()
    archived(layers, tmp_path)
    assert (tmp_path / "image.tar").read_bytes() == first


def test_the_layers_add_up_to_the_folder(layers: list[Layer], tmp_path: Path) -> None:
    archived(layers, tmp_path)
    assert unpack_archive(tmp_path / "image.tar", tmp_path / "unpacked")["architecture"] == "amd64"
    assert packed(tmp_path / "unpacked") == packed(tmp_path / "root")


def test_a_blob_with_another_digest_is_found(layers: list[Layer], tmp_path: Path) -> None:
    layers[1].path.write_bytes(gzip.compress(b"x" * layers[1].byte_count))
    archived(layers, tmp_path)
    with pytest.raises(ValueError, match="has the digest"):
        unpack_archive(tmp_path / "image.tar", tmp_path / "unpacked")


def test_a_layer_with_another_content_is_found(layers: list[Layer], tmp_path: Path) -> None:
    archived([layers[0], replace(layers[1], content_digest=layers[0].content_digest)], tmp_path)
    with pytest.raises(ValueError, match=r"a layer of .* has the content"):
        unpack_archive(tmp_path / "image.tar", tmp_path / "unpacked")


def test_an_archive_that_could_not_be_written_leaves_the_older_one(layers: list[Layer], tmp_path: Path) -> None:
    archived(layers, tmp_path)
    older = (tmp_path / "image.tar").read_bytes()
    layers[1].path.unlink()
    with pytest.raises(FileNotFoundError):
        archived(layers, tmp_path)
    assert (tmp_path / "image.tar").read_bytes() == older
