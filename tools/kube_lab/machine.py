"""What the machine must have for the lab, and what to do where it lacks it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tools import go_servers
from tools.kube_lab.confinement import CONTROLLERS
from tools.kubernetes import helm, kube_programs

REPLACED_FOLDERS = (Path("/run"), Path("/var"))
"""A node has its own ones (`tools.kube_lab.nodes`)."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""Bits of what namespaces and mounts need, as capability.h of Linux numbers them."""
SMALL_FILES = ("overlay", "tmpfs")


def problems(folder: Path, cgroup_folders: Mapping[str, Path]) -> list[str]:
    """Reasons why no lab can be in `folder`, each with what to do. `cgroup_folders`: as `hierarchies` returns them."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return ["the lab makes namespaces, cgroups and mounts: run it as root, on Linux"]
    reasons = []
    lacking = missing_capabilities(Path("/proc/self/status").read_text())
    if lacking:
        reasons.append(f"root lacks {', '.join(lacking)} here: in a container, start that one with --privileged")
    missing = sorted(CONTROLLERS - cgroup_folders.keys())
    if missing:
        reasons.append(
            f"the lab needs cgroup version 1, which lacks {', '.join(missing)} here: mount these controllers, or start "
            "Linux with systemd.unified_cgroup_hierarchy=0"
        )
    programs = {
        "Kubernetes": kube_programs.kubernetes_program(),
        "CoreDNS": kube_programs.coredns_program(),
        "the pause program": kube_programs.pause_program(),
        "helm": helm.helm_program(),
        "kubectl": helm.kubectl_program(),
        "etcd": go_servers.etcd_program(),
        "MinIO": go_servers.minio_program(),
    }
    absent = [name for name, program in programs.items() if not program.exists()]
    absent += [f"Debian's package {package}" for package in kube_programs.missing_packages()]
    if absent:
        reasons.append(f"missing: {', '.join(absent)}. Run make setup-kube")
    if any(folder.is_relative_to(replaced) for replaced in REPLACED_FOLDERS):
        reasons.append(
            f"{folder} is hidden from nodes, which have a /run and a /var of their own: choose another folder"
        )
    if file_system(folder, Path("/proc/self/mountinfo").read_text()) in SMALL_FILES:
        reasons.append(f"{folder} cannot hold layers of images: choose a folder on a disk, of 4 GB")
    return reasons


def missing_capabilities(status: str) -> list[str]:
    """Names of capabilities that a process needs and lacks. `status` has the form of /proc/self/status."""
    (mask,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return [name for name, bit in CAPABILITIES.items() if not mask >> bit & 1]


def file_system(folder: Path, mounts: str) -> str:
    """Type of the file system that `folder` is on. `mounts` has the form of /proc/self/mountinfo."""
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        words, _separator, described = line.partition(" - ")
        kinds[Path(words.split()[4])] = described.split(" ", 1)[0]
    return next(kinds[path] for path in (folder, *folder.parents) if path in kinds)
