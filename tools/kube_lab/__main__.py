"""A real Kubernetes of three nodes, with three agents by the chart, to try things with. Ctrl-C ends all of it.

make kube ARGS=FOLDER        (or: .venv/bin/python -m tools.kube_lab FOLDER; after make setup-test setup-kube image)

Needs root, on Linux with cgroup version 1. FOLDER/enter is a script that runs a command, or a shell, where the cluster
is: it has kubectl and helm, and reaches agents, the bucket and names of Services. Nothing else on this machine does.

Rule: every start begins with an empty cluster. FOLDER (`./penstock-kube`) keeps logs, and unpacked images.
"""

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path

from tools.kube_lab.control_plane import STORE_ENDPOINT
from tools.kube_lab.images import PenstockImage, find_image, read_image
from tools.kube_lab.lab import Lab, LabCommandFailed, running_lab
from tools.local_cluster import stop_by_signals
from tools.packaging.wheel import DIST
from tools.steps import SetupFailed, say

RELEASE = NAMESPACE = "kafka"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make kube", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default="penstock-kube", help="where files lie (%(default)s)")
    parser.add_argument("--image", type=Path, help="the image's archive, by default that in dist")
    arguments = parser.parse_args()
    stop_by_signals()
    with suppress(KeyboardInterrupt):
        try:
            image = read_image(arguments.image) if arguments.image else find_image(DIST)
            _run(arguments.folder, image)
        except (SetupFailed, LabCommandFailed) as error:
            sys.exit(str(error))


def _run(folder: Path, image: PenstockImage) -> None:
    began = time.monotonic()
    say(f"Penstock {image.version} of commit {image.revision[:12]}")
    with running_lab(folder, image) as lab:
        say(f"nodes      {', '.join(lab.nodes)}   ready after {time.monotonic() - began:.0f} s")
        lab.create_namespace(NAMESPACE)
        lab.install(RELEASE, NAMESPACE)
        show(lab, time.monotonic() - began)
        while True:
            for name, status in lab.programs.ended().items():
                say(f"{name} has ended with status {status}; its log is in {lab.programs.logs}")
            time.sleep(0.5)


def show(lab: Lab, seconds: float) -> None:
    """Print what runs and how it is reached."""
    for pod in lab.get("pods", "--namespace", NAMESPACE)["items"]:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        say(f"{name:<32} {pod['status']['podIP']:<14} node {node}, {lab.nodes[node].zone}")
    service = lab.get("service", f"{RELEASE}-penstock", "--namespace", NAMESPACE)["spec"]["clusterIP"]
    enter = lab.folder / "enter"
    say(f"bootstrap  {service}:9092   http {service}:9644   bucket {STORE_ENDPOINT}")
    say(f"ready after {seconds:.0f} s, {lab.memory_bytes() / 1e6:.0f} MB; logs are in {lab.programs.logs}")
    say(f"\n  {enter} kubectl get pods --all-namespaces\n  {enter}    a shell there\n\nCtrl-C ends all of it.")


if __name__ == "__main__":
    main()
