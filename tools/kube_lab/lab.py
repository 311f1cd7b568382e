"""The lab as a whole: three nodes and all they need, started and ended; helm and kubectl; Penstock by its chart."""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kube_lab import machine
from tools.kube_lab.confinement import Cgroups, hierarchies, private_names, private_network
from tools.kube_lab.control_plane import BUCKET, HOST_ADDRESS, KEY, SECRET, STORE_ENDPOINT, ControlPlane
from tools.kube_lab.images import PenstockImage, ensure_store
from tools.kube_lab.nodes import NODES, POD_LOGS, LabNode, import_images
from tools.kube_lab.pod_logs import kept_pod_logs
from tools.kube_lab.programs import LabPrograms
from tools.kubernetes.helm import helm_program, kubectl_program
from tools.steps import ROOT, SetupFailed, say

CHART = ROOT / "deploy" / "chart"
VALUES = Path(__file__).with_name("values.yaml")
KEYS = "bucket-keys"
"""The Secret with the bucket's keys, in each namespace of `Lab.create_namespace`."""
STORAGE_CLASS = "lab"
VOLUMES = 24
FIRST_NODE_NUMBER = 11
AGENT_UID = 10001
READY_SECONDS_MAX = 120.0
COMMAND_SECONDS_MAX = 600.0
"""Longer than any command of kubectl or helm waits by its own options, so one that takes longer hangs."""


class LabCommandFailed(Exception):
    """kubectl or helm failed. The message has what it wrote."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A cluster of three nodes that runs."""

    folder: Path
    image: PenstockImage
    programs: LabPrograms
    control: ControlPlane
    nodes: Mapping[str, LabNode]

    @property
    def resolver(self) -> Path:
        """A resolv.conf by which names are found as a pod finds them."""
        return _resolver(self.folder)

    @property
    def store_environment(self) -> dict[str, str]:
        """What a client of the bucket in the lab's network has in its environment."""
        return {
            "AWS_ENDPOINT_URL": STORE_ENDPOINT,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """What kubectl writes. It reads `text`. Raises `LabCommandFailed`."""
        return self._run([str(kubectl_program()), *words], text)

    def get(self, *words: str) -> dict[str, Any]:
        """What `kubectl get` returns as JSON."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output=json"))
        return found

    def apply(self, *objects: Mapping[str, object]) -> None:
        """Create objects, or change them."""
        self.kubectl("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def helm(self, *words: str) -> str:
        """What helm writes. Raises `LabCommandFailed`."""
        return self._run([str(helm_program()), *words], None)

    def create_namespace(self, name: str) -> None:
        """Create a namespace of the strictest pod security, with the Secret of the bucket's keys."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        keys = {name: self.store_environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": KEYS, "namespace": name}, "stringData": keys},
        )

    def install(self, release: str, namespace: str, *options: str, chart: Path = CHART) -> str:
        """Install a chart as a release, or upgrade it, and wait until it is ready. Returns what helm writes.

        Raises `LabCommandFailed`, also with what the namespace's pods say that are not ready.
        """
        try:
            return self.helm(
                *("upgrade", "--install", release, str(chart), "--namespace", namespace, "--wait", "--timeout=3m"),
                *("--values", str(VALUES), "--set", f"image.tag={self.image.tag}"),
                *("--set", f"store.url=s3://{BUCKET}/{namespace}/{release},store.endpoint={STORE_ENDPOINT}"),
                *options,
            )
        except LabCommandFailed as error:
            raise LabCommandFailed(f"{error}\n{self.unready_pods(namespace)}") from error

    def unready_pods(self, namespace: str) -> str:
        """What there is to read about each pod of a namespace that is not ready: events, states, and ends of logs."""
        texts: list[str] = []
        for pod in self.get("pods", "--namespace", namespace)["items"]:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
            if conditions.get("Ready") == "True":
                continue
            name = pod["metadata"]["name"]
            texts.append(self.kubectl("describe", "pod", name, "--namespace", namespace))
            for which in ("--previous", "--previous=false"):
                with suppress(LabCommandFailed):  # it has no log, or none before
                    texts.append(self.kubectl("logs", name, "--namespace", namespace, "--tail=40", which))
        return "\n".join(texts)

    def memory_bytes(self) -> int:
        """Memory of all that the lab runs, pods included."""
        return self.programs.cgroups.memory_bytes()

    def lose_node(self, name: str) -> None:
        """End every process of a node at once."""
        self.nodes[name].lose()

    def return_node(self, name: str) -> None:
        """Start a lost node again. Returns before it is ready."""
        self.nodes[name].come_back(self.control.kubeconfig(name))

    def _run(self, command: Sequence[str], text: str | None) -> str:
        try:
            done = subprocess.run(
                # In the lab's cgroups, so that it ends with the lab even if this process is killed.
                [*self.programs.cgroups.joining(), *command],
                env=environment(self.folder),
                input=text,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMMAND_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as error:
            raise LabCommandFailed(f"{shlex.join(command)}\ndid not end in {COMMAND_SECONDS_MAX:.0f} s") from error
        if done.returncode != 0:
            raise LabCommandFailed(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def running_lab(folder: Path, image: PenstockImage, others: Sequence[PenstockImage] = ()) -> Iterator[Lab]:
    """A lab with its files in `folder`, for as long as the block lasts. This thread is in its network meanwhile, and
    finds its names.

    `others`: versions of the image that nodes have besides it.

    Raises `SetupFailed`, with all that is missing, where the machine can have none.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    folders = hierarchies(Path("/proc/self/mountinfo").read_text())
    reasons = machine.problems(folder, folders)
    if reasons:
        raise SetupFailed("no lab on this machine:\n- " + "\n- ".join(reasons))
    with _alone_in(folder):
        programs = LabPrograms(folder / "logs", Cgroups(cgroup_name(folder), folders))
        _remove(folder, programs)
        try:
            with private_network():
                lab = _start(folder, image, others, programs)
                pods = [node.folder / POD_LOGS for node in lab.nodes.values()]
                with private_names(lab.resolver), kept_pod_logs(pods, programs.logs / "pods"):
                    yield lab
        finally:
            say("the lab ends: deleting its state may take a minute")
            _remove(folder, programs)


def cgroup_name(folder: Path) -> str:
    """The name, in each hierarchy of cgroups, of the lab whose files lie in an absolute folder."""
    return f"penstock-kube-{hashlib.sha256(bytes(folder)).hexdigest()[:8]}"


def environment(folder: Path) -> dict[str, str]:
    """What kubectl and helm of the lab in a folder have in their environment."""
    state = folder / "state"
    return {
        **os.environ,
        "HOME": str(state),
        "KUBECONFIG": str(state / "control" / "admin.conf"),
    }


def _start(folder: Path, image: PenstockImage, others: Sequence[PenstockImage], programs: LabPrograms) -> Lab:
    """Start all of the lab but Penstock."""
    state = folder / "state"
    state.mkdir()
    shutil.rmtree(programs.logs, ignore_errors=True)  # there are none at the first start
    programs.logs.mkdir()
    programs.cgroups.create(NODES)
    nodes = {
        name: LabNode(name, number, state / f"node-{name}", programs)
        for number, name in enumerate(NODES, FIRST_NODE_NUMBER)
    }
    lab = Lab(folder, image, programs, ControlPlane(state / "control", programs), nodes)
    images = ensure_store(
        folder / "images",
        [each.archive for each in (image, *others)],
        lambda store, archives: import_images(programs, state / "import", store, archives),
    )
    lab.control.create(list(nodes.values()))
    for node in nodes.values():
        node.create(images)
        node.start_containerd()
    lab.control.start_api()
    lab.control.start_others()
    for name, node in nodes.items():
        node.start_kubelet(lab.control.kubeconfig(name))
    lab.control.start_store()
    _create_volumes(lab)
    lab.control.wait_for_names()
    _wait_for_nodes(lab)
    _write_enter(folder)
    return lab


def _wait_for_nodes(lab: Lab) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        states = {
            node["metadata"]["name"]: condition["status"] == "True"
            for node in lab.get("nodes")["items"]
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        }
        if sum(states.values()) == len(lab.nodes):
            return
        if time.monotonic() > deadline:
            raise SetupFailed(f"nodes are not ready: {states}. Their logs are in {lab.programs.logs}")
        time.sleep(0.2)


def _create_volumes(lab: Lab) -> None:
    """Volumes that every node reaches, as those of a network: folders of the one machine."""
    volumes = []
    for number in range(VOLUMES):
        path = lab.folder / "state" / "volumes" / str(number)
        path.mkdir(parents=True)
        os.chown(path, AGENT_UID, AGENT_UID)
        spec = {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(path)},
        }
        metadata = {"name": f"{STORAGE_CLASS}-{number}"}
        volumes.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    lab.apply(*volumes)


def _write_enter(folder: Path) -> None:
    """A script that runs a command, or a shell, in the lab's network with kubectl, helm and the lab's names."""
    names = _resolver(folder)
    names.write_text(f"nameserver {HOST_ADDRESS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n")
    mount = f'mount --no-mtab --bind {shlex.quote(str(names))} /etc/resolv.conf && exec "$@"'
    network = f"/proc/{os.getpid()}/task/{os.getpid()}/ns/net"
    enter = folder / "enter"
    enter.write_text(
        "#!/bin/sh\n"
        '[ $# -gt 0 ] || set -- "${SHELL:-sh}"\n'
        f"export KUBECONFIG={shlex.quote(environment(folder)['KUBECONFIG'])}\n"
        f'export PATH={shlex.quote(str(kubectl_program().parent))}:"$PATH"\n'
        f'exec nsenter --net={network} unshare --mount --propagation private sh -c {shlex.quote(mount)} sh "$@"\n'
    )
    enter.chmod(0o755)


def _resolver(folder: Path) -> Path:
    return folder / "state" / "resolv.conf"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep a second lab out of the folder. The lock ends with this process, however that ends."""
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SetupFailed(
                f"process {lock.read()} has a lab in {folder}: end it first, or choose another folder"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _remove(folder: Path, programs: LabPrograms) -> None:
    """End all that a lab in this folder started, and remove it, but for its logs and the unpacked images."""
    programs.kill_all()
    programs.cgroups.remove()
    (folder / "enter").unlink(missing_ok=True)
    if (folder / "state").exists():
        shutil.rmtree(folder / "state")
