"""Kubernetes is built from its published modules at one version, and what a node lacks is named."""

from pathlib import Path

import pytest

from tools import pins
from tools.kubernetes.kube_programs import (
    DEBIAN_PROGRAMS,
    ensure_debian_programs,
    kubernetes_flags,
    kubernetes_module,
    missing_packages,
)
from tools.steps import SetupFailed

PUBLISHED = """\
// comment
module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
	github.com/other/module v1.2.3
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_parts_of_the_repository_are_modules_of_the_same_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "KUBERNETES", "v1.34.4")
    assert kubernetes_module(PUBLISHED).splitlines() == [
        "module kubernetes",
        "",
        "go 1.24.0",
        "godebug default=go1.24",
        "",
        "require k8s.io/kubernetes v1.34.4",
        "",
        "replace k8s.io/api => k8s.io/api v0.34.4",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.34.4",
    ]


def test_programs_have_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "KUBERNETES", "v1.34.4")
    flags = kubernetes_flags().split()
    for value in ("gitVersion=v1.34.4", "gitMajor=1", "gitMinor=34"):
        assert f"k8s.io/component-base/version.{value}" in flags


def test_a_user_who_is_not_root_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert set(missing_packages()) >= set(DEBIAN_PROGRAMS.values()) - {"containernetworking-plugins"}
    with pytest.raises(SetupFailed, match=r"(?s)lacks .*containerd.*apt-get install --yes"):
        ensure_debian_programs()
