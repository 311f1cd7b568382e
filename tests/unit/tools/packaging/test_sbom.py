"""The list of an image's contents names every package with its licence, and the texts are in the image."""

import json
from pathlib import Path

import pytest

from tools.packaging.sbom import FILE, LICENSES_FILE, write
from tools.steps import SetupFailed

LIBRARIES = "lib"
CREATED = "2026-01-02T03:04:05Z"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image with a package of Debian and three of Python."""
    (tmp_path / "documents").mkdir()
    notes = tmp_path / "var" / "lib" / "dpkg" / "status.d"
    notes.mkdir(parents=True)
    (notes / "libstdc++6").write_text(
        "Package: libstdc++6\nSource: gcc-14 (14.2)\nVersion: 1:14~2+b1\nArchitecture: amd64\nDescription: x\n y\n"
    )
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "usr" / "lib" / "os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    (notes / "libstdc++6.md5sums").write_text("0 x\n")
    copyright_file = tmp_path / "usr" / "share" / "doc" / "libstdc++6" / "copyright"
    copyright_file.parent.mkdir(parents=True)
    copyright_file.write_text("GPL with the runtime exception")
    add(tmp_path, "Stated_Name", "License-Expression: MIT\n", {"licenses/LICENSE": "MIT License"})
    add(tmp_path, "older", "License: LGPL-2.1-or-later\n", {"COPYING": "LGPL"})
    add(tmp_path, "old", "License: BSD 3-Clause\n Redistribution\n", {"LICENSE.txt": "BSD", "NOTICE": "notice"})
    add(tmp_path, "classified", "Classifier: License :: OSI Approved :: MIT License\n", {})
    return tmp_path


def add(root: Path, name: str, metadata: str, texts: dict[str, str]) -> None:
    folder = root / LIBRARIES / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}\nLong text\n")
    for path, text in texts.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)


def written(root: Path) -> Path:
    (root / "texts").mkdir()
    (root / "texts" / "classified").write_text("MIT License")
    write(root, root / LIBRARIES, root / "documents", {"classified": "texts/classi*"}, CREATED)
    return root / "documents"


def test_every_package_is_in_the_document(root: Path) -> None:
    document = json.loads((written(root) / FILE).read_text())
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["creationInfo"]["created"] == CREATED
    rows = {
        package["externalRefs"][0]["referenceLocator"]: (package["versionInfo"], package["licenseDeclared"])
        for package in document["packages"]
    }
    assert rows == {
        "pkg:deb/debian/libstdc%2B%2B6@1%3A14%7E2%2Bb1?arch=amd64&distro=debian-13&upstream=gcc-14": (
            "1:14~2+b1",
            "NOASSERTION",
        ),
        "pkg:pypi/stated-name@1.0": ("1.0", "MIT"),
        "pkg:pypi/classified@1.0": ("1.0", "NOASSERTION"),
        "pkg:pypi/old@1.0": ("1.0", "NOASSERTION"),
        "pkg:pypi/older@1.0": ("1.0", "LGPL-2.1-or-later"),
    }
    described = {row["relatedSpdxElement"] for row in document["relationships"]}
    assert described == {package["SPDXID"] for package in document["packages"]}


def test_people_find_each_licence_and_its_texts(root: Path) -> None:
    lines = (written(root) / LICENSES_FILE).read_text().splitlines()[2:]
    assert lines == [
        "libstdc++6 1:14~2+b1: see its file copyright",
        "    /usr/share/doc/libstdc++6/copyright",
        "Stated_Name 1.0: MIT",
        "    /lib/Stated_Name-1.0.dist-info/licenses/LICENSE",
        "classified 1.0: MIT License",
        "    /texts/classified",
        "old 1.0: BSD 3-Clause",
        "    /lib/old-1.0.dist-info/LICENSE.txt",
        "    /lib/old-1.0.dist-info/NOTICE",
        "older 1.0: LGPL-2.1-or-later",
        "    /lib/older-1.0.dist-info/COPYING",
    ]


def test_a_package_without_a_licence_text_stops_the_build(root: Path) -> None:
    with pytest.raises(SetupFailed, match="no licence text is in the image for classified: name one"):
        write(root, root / LIBRARIES, root / "documents", {}, CREATED)
    assert not list((root / "documents").iterdir())


def test_a_licence_text_of_the_building_machine_does_not_count(root: Path) -> None:
    text = root / "usr" / "share" / "doc" / "libstdc++6" / "copyright"
    text.unlink()
    text.symlink_to("/etc/hostname")
    with pytest.raises(SetupFailed, match=r"no licence text is in the image for libstdc\+\+6"):
        written(root)


def test_a_library_without_metadata_stops_the_build(root: Path) -> None:
    (root / LIBRARIES / "old-1.0.dist-info" / "METADATA").unlink()
    with pytest.raises(SetupFailed, match=r"old-1\.0\.dist-info has no METADATA"):
        written(root)


def test_equal_contents_give_an_equal_document(root: Path) -> None:
    first = (written(root) / FILE).read_bytes()
    write(root, root / LIBRARIES, root / "documents", {"classified": "texts/classified"}, CREATED)
    assert (root / "documents" / FILE).read_bytes() == first
