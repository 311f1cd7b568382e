"""kubeconform, and the schemas of Kubernetes' objects by which it judges manifests.

Kubernetes describes its API as OpenAPI, in a file of the Go module k8s.io/kubernetes. Of that file one JSON schema is
made for each kind of object. Rule: the schemas are strict, so a field that Kubernetes does not know is an error.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import pins
from tools.go_servers import ensure_go, go_settings
from tools.steps import SetupFailed, cache_folder, ensure, run

API_FILE = "api/openapi-spec/swagger.json"
SCHEMA_FORM = "1"
"""Raised when `schemas_of` changes, so that older schemas are made again."""
DEFINITIONS = "#/definitions/"
EITHER = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
LOOSE = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": EITHER,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
"""Types that the API describes as text and that accept a number."""

Schema = dict[str, Any]


def kubeconform_program() -> Path:
    """Where `ensure_kubeconform` puts the program."""
    return cache_folder() / f"kubeconform-{pins.KUBECONFORM}" / "kubeconform"


def schema_folder(version: str) -> Path:
    """Where `ensure_schemas` puts the schemas of a version of `pins.KUBERNETES_SCHEMAS`, as KIND-GROUP-VERSION.json."""
    return cache_folder() / f"kubernetes-schemas-{pins.KUBERNETES_SCHEMAS[version][0]}-{SCHEMA_FORM}"


def ensure_kubeconform() -> Path:
    """Path of kubeconform."""

    def build(folder: Path) -> None:
        module = f"github.com/yannh/kubeconform/cmd/kubeconform@{pins.KUBECONFORM}"
        run("kubeconform", [ensure_go(), "install", "-ldflags=-s -w", module], env=go_settings(folder), attempts=3)

    return ensure(f"kubeconform {pins.KUBECONFORM}", kubeconform_program().parent, build) / "kubeconform"


def ensure_schemas(version: str) -> Path:
    """Folder with the schemas of a version of `pins.KUBERNETES_SCHEMAS`."""

    def build(folder: Path) -> None:
        modules = folder.with_name(f"{folder.name}.modules")
        shutil.rmtree(modules, ignore_errors=True)
        api = json.loads((_module(version, modules) / API_FILE).read_bytes())
        shutil.rmtree(modules)
        for name, schema in schemas_of(api["definitions"]):
            (folder / f"{name}.json").write_text(json.dumps(schema), encoding="utf-8")

    return ensure(f"Kubernetes {version}'s schemas", schema_folder(version), build)


def schemas_of(definitions: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """KIND-GROUP-VERSION (KIND-VERSION for the core group) in lower case, and the schema, of each kind of object."""
    strict = {name: _strict(name, schema) for name, schema in definitions.items()}
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            if len(schema["x-kubernetes-group-version-kind"]) > 1:
                continue  # DeleteOptions and its like are of every group, and no manifest has one
            group = kind["group"].partition(".")[0]
            parts = (kind["kind"], group, kind["version"]) if group else (kind["kind"], kind["version"])
            own = {part: strict[part] for part in sorted(_reachable(name, strict))}
            yield "-".join(parts).lower(), {"$ref": DEFINITIONS + name, "definitions": own}


def _strict(name: str, schema: Schema) -> Schema:
    if name in LOOSE:
        return LOOSE[name]
    kept = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "description"}
    if "properties" in kept:
        kept["properties"] = {
            key: {part: each for part, each in value.items() if part not in ("description", "default")}
            for key, value in kept["properties"].items()
        }
        kept["additionalProperties"] = False
    return kept


def _reachable(name: str, definitions: Mapping[str, Schema]) -> set[str]:
    """The definitions that a definition refers to, itself included."""
    found, pending = {name}, [name]
    while pending:
        for part in _references(definitions[pending.pop()]):
            if part not in found:
                found.add(part)
                pending.append(part)
    return found


def _references(value: object) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(DEFINITIONS)
        case dict():
            for each in value.values():
                yield from _references(each)
        case list():
            for each in value:
                yield from _references(each)


def _module(version: str, modules: Path) -> Path:
    """The folder of the module, fetched into `modules`. Its dependencies are not fetched."""
    module, checksum = pins.KUBERNETES_SCHEMAS[version]
    command: Sequence[str | Path] = [ensure_go(), "mod", "download", "-json", f"k8s.io/kubernetes@{module}"]
    environment = {**go_settings(modules), "GOMODCACHE": str(modules)}
    run("kubernetes", command, env=environment, attempts=3)
    answer = json.loads(_output(command, environment))
    if answer["Sum"] != checksum:
        raise SetupFailed(f"k8s.io/kubernetes {module} has the sum {answer['Sum']}, not {checksum} of tools/pins.py")
    return Path(answer["Dir"])


def _output(command: Sequence[str | Path], environment: Mapping[str, str]) -> bytes:
    """What a command prints that `run` has already carried out once, with its output in a log."""
    return subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True).stdout
