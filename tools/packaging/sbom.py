"""The list of what an image contains, with licences: as SPDX for programs, and as text for people.

Rule: every package has a licence text within the image, or none of both is written.
Specification: SPDX 2.3; purl-spec (deb, pypi); Python's core metadata 2.4.
"""

import email.parser
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from tools.steps import SetupFailed

FILE = "sbom.spdx.json"
LICENSES_FILE = "LICENSES"
NOTES = "var/lib/dpkg/status.d"
UNSTATED = "NOASSERTION"
"""SPDX's word for what is not said in SPDX's terms."""
EXPRESSIONS = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "LGPL-2.1-or-later", "MIT")
"""What older metadata say in a free field is an expression of SPDX if it is one of these."""
TEXTS = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "licenses/**/*", "license_files/**/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A package in an image."""

    name: str
    version: str
    url: str
    """Its package URL."""
    license: str
    """An expression of SPDX, or `UNSTATED`."""
    statement: str
    """What the package itself says of its licence."""
    texts: Sequence[str]
    """Paths of its licence's texts, relative to the image's root."""


def write(root: Path, libraries: Path, documents: Path, texts: Mapping[str, str], created: str) -> None:
    """Write both lists into `documents`. `texts`: of packages without a text of their own, where it lies as a glob."""
    components = [*debian_components(root), *python_components(root, libraries, texts)]
    lacking = [component.name for component in components if not component.texts]
    if lacking:
        raise SetupFailed(f"no licence text is in the image for {', '.join(lacking)}: name one in image.toml")
    (documents / FILE).write_text(json.dumps(spdx(components, created), indent=1) + "\n", encoding="utf-8")
    (documents / LICENSES_FILE).write_text(_list(components), encoding="utf-8")


def debian_components(root: Path) -> Iterator[Component]:
    """Packages of Debian, by the notes of `tools.packaging.debian.unpack`.

    Their URLs have the release, and the source package where its name differs: advisories are about both.
    """
    release = _release(root)
    for path in sorted((root / NOTES).iterdir()):
        if path.suffix == ".md5sums":
            continue
        fields = email.parser.HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        name, version = fields["Package"], fields["Version"]
        source = (fields["Source"] or name).split()[0]
        qualifiers = f"arch={fields['Architecture']}&distro=debian-{release}"
        if source != name:
            qualifiers += f"&upstream={_quoted(source)}"
        text = root / "usr" / "share" / "doc" / name / "copyright"
        yield Component(
            name=name,
            version=version,
            url=f"pkg:deb/debian/{_quoted(name)}@{_quoted(version)}?{qualifiers}",
            license=UNSTATED,
            statement="see its file copyright",
            texts=[str(text.relative_to(root))] if _is_file_of(root, text) else [],
        )


def _release(root: Path) -> str:
    """The number of Debian's release, by os-release(5)."""
    for line in (root / "usr" / "lib" / "os-release").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key == "VERSION_ID":
            return value.strip('"')
    raise SetupFailed("usr/lib/os-release of the image has no VERSION_ID: is base-files among its packages?")


def _is_file_of(root: Path, path: Path) -> bool:
    """Whether a path is a file within the image. A link to a file of this machine is none."""
    resolved = path.resolve()
    return resolved.is_relative_to(root.resolve()) and resolved.is_file()


def python_components(root: Path, libraries: Path, texts: Mapping[str, str]) -> Iterator[Component]:
    """Python's packages, by their metadata."""
    for folder in sorted(libraries.glob("*.dist-info")):
        metadata = folder / "METADATA"
        if not metadata.is_file():
            raise SetupFailed(f"{folder.name} has no METADATA: correct what image.toml leaves out")
        fields = email.parser.HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
        name, version = fields["Name"], fields["Version"]
        found = {path for pattern in TEXTS for path in folder.glob(pattern) if path.is_file()}
        if not found and name in texts:
            found = set(root.glob(texts[name]))
        statement = _statement(fields)
        yield Component(
            name=name,
            version=version,
            url=f"pkg:pypi/{name.lower().replace('_', '-')}@{_quoted(version)}",
            license=fields["License-Expression"] or (statement if statement in EXPRESSIONS else UNSTATED),
            statement=statement,
            texts=sorted(str(path.relative_to(root)) for path in found),
        )


def spdx(components: Sequence[Component], created: str) -> dict[str, Any]:
    """The list as a document of SPDX 2.3. `created`: a time as RFC 3339 has it."""
    packages = [
        {
            "SPDXID": f"SPDXRef-{index}",
            "name": component.name,
            "versionInfo": component.version,
            "downloadLocation": UNSTATED,
            "filesAnalyzed": False,
            "licenseConcluded": UNSTATED,
            "licenseDeclared": component.license,
            "licenseComments": f"{component.statement}; texts: {', '.join(component.texts)}",
            "copyrightText": UNSTATED,
            "externalRefs": [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.url}
            ],
        }
        for index, component in enumerate(components)
    ]
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "penstock-image",
        "documentNamespace": f"https://spdx.org/spdxdocs/penstock-image-{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: penstock-tools.image"]},
        "packages": packages,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": package["SPDXID"],
            }
            for package in packages
        ],
    }


def _list(components: Sequence[Component]) -> str:
    lines = [
        "What this image contains: package, version, licence as the package states it, and where its text lies.",
        "",
    ]
    for component in components:
        lines.append(f"{component.name} {component.version}: {component.statement}")
        lines += [f"    /{text}" for text in component.texts]
    return "\n".join(lines) + "\n"


def _statement(fields: Message) -> str:
    """What metadata say of the licence: an expression, else the first line of their text, else their classifiers."""
    stated = fields.get("License-Expression") or (fields.get("License") or "").strip().partition("\n")[0]
    if stated:
        return str(stated)
    classifiers = fields.get_all("Classifier") or []
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    return ", ".join(named) or "not stated in its metadata"


def _quoted(text: str) -> str:
    return text.replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")
