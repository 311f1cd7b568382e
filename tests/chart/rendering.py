"""The chart as Helm renders it: manifests of a file of values."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.processes import provided
from tools.kubernetes.helm import helm_program
from tools.kubernetes.kubeconform import kubeconform_program, schema_folder
from tools.pages import chart_readme

CHART: Final = chart_readme.CHART
SETUPS: Final = {path.stem: path for path in sorted((CHART / "ci").glob("*.yaml"))}
"""The files of values that are supported, by their names."""
RELEASE: Final = "records"
NAME: Final = "records-penstock"
"""The name of objects of that release."""
NAMESPACE: Final = "streams"
APIS: Final = ("cert-manager.io/v1", "monitoring.coreos.com/v1")
LOWEST, HIGHEST = "1.31", "1.36"
SCHEMAS_OF_OTHERS: Final = Path(__file__).with_name("schemas")
"""Schemas of cert-manager's and Prometheus Operator's objects: the fields that the chart uses."""
SECONDS_MAX: Final = 150
"""For one call of a program, which takes 0.2 s of processor time: the machine may be busy."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of a release, in the order in which Helm renders them."""

    objects: tuple[Manifest, ...]

    def all(self, kind: str) -> list[Manifest]:
        return [each for each in self.objects if each["kind"] == kind]

    def named(self, kind: str, name: str = NAME) -> Manifest:
        """The object of that name. Raises `AssertionError` where there is none."""
        found = [each for each in self.all(kind) if each["metadata"]["name"] == name]
        names = [each["metadata"]["name"] for each in self.all(kind)]
        assert len(found) == 1, f"no {kind} {name}, but {names}"
        return found[0]

    def agents(self) -> list[Manifest]:
        """The Deployments of agents."""
        found = self.all("Deployment")
        assert found, "no Deployment"
        return found

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Kind and name, and the specification, of every pod."""
        for each in self.objects:
            name = f"{each['kind']} {each['metadata']['name']}"
            match each["kind"]:
                case "Pod":
                    yield name, each["spec"]
                case "Deployment" | "StatefulSet" | "Job":
                    yield name, each["spec"]["template"]["spec"]
                case "CronJob":
                    yield name, each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    """All containers of a pod's specification."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def agent_container(deployment: Manifest) -> Manifest:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def render(
    *files: Path, chart: Path = CHART, kubernetes: str = HIGHEST, apis: Sequence[str] = APIS, values: Sequence[str] = ()
) -> Manifests:
    """The manifests of the values in `files`, later ones first, and of `values`, each NAME=VALUE."""
    done = template(*files, chart=chart, kubernetes=kubernetes, apis=apis, values=values)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


def parse(text: str) -> Manifests:
    return Manifests(tuple(each for each in yaml.load_all(text, yaml.CSafeLoader) if each))


@cache
def setup(name: str, kubernetes: str = HIGHEST) -> Manifests:
    """The manifests of a supported file of values. They are shared: nobody changes them."""
    return parse(setup_text(name, kubernetes))


@cache
def setup_text(name: str, kubernetes: str) -> str:
    done = template(SETUPS[name], kubernetes=kubernetes)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    return done.stdout


def template(
    *files: Path, chart: Path = CHART, kubernetes: str = HIGHEST, apis: Sequence[str] = APIS, values: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """`helm template`, whatever comes of it."""
    words = [word for file in files for word in ("--values", str(file))]
    words += [word for api in apis for word in ("--api-versions", api)]
    words += [word for value in values for word in ("--set-json", value)]
    return helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, "--kube-version", f"{kubernetes}.0", *words)


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [provided(helm_program()), *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def conformity(folder: Path, kubernetes: str) -> dict[str, Any]:
    """What kubeconform says about the manifests in a folder."""
    names = "{{.ResourceKind}}{{.KindSuffix}}.json"
    done = subprocess.run(
        [
            provided(kubeconform_program()),
            "-strict",
            "-summary",
            *("-output", "json"),
            *("-schema-location", str(provided(schema_folder(kubernetes)) / names)),
            *("-schema-location", str(SCHEMAS_OF_OTHERS / names)),
            folder,
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report
