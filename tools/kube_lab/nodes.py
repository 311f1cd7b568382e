"""A node: containerd and a kubelet in a mount namespace of their own, with pods on a bridge of their own.

Kubernetes' programs take the usual folders in /run and /var: in the namespace these are the node's. Those settings of
the kernel that a kubelet changes are covered by files, so that the machine's stay as they are.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.kube_lab.images import PAUSE_IMAGE, copy_store
from tools.kube_lab.programs import LabPrograms
from tools.kubernetes.kube_programs import kubernetes_program
from tools.steps import SetupFailed

NODES = ("a", "b", "c")
DNS_ADDRESS = "10.77.0.1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
STORE = Path("var/lib/containerd")
"""Where containerd keeps images, in a node's folder."""
KERNEL_SETTINGS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets, and would set for the whole machine."""
MOUNTS = """\
set -e
mount --no-mtab -t tmpfs -o mode=755 tmpfs /run
mount --bind "$1/var" /var
for file in {settings}; do mount --bind "$1/settings/$(basename $file)" "/proc/sys/$file"; done
mount --make-rshared /
shift
exec "$@"
"""
POD_LOGS = Path("var") / "log" / "pods"
"""Where a node's folder has the logs of its containers."""
CONTAINERD = """\
version = 2
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
"""
NETWORK = """\
{{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {{"type": "bridge", "bridge": "pods-{name}", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
    "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "10.77.{number}.0/24"}}]]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
healthzPort: 0
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failCgroupV1: false
failSwapOn: false
clusterDNS: [{dns}]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://{socket}
resolvConf: {folder}/resolv.conf
enforceNodeAllocatable: []
evictionHard: {{memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
# Settings that a container in a container may not change are no errors.
featureGates: {{KubeletInUserNamespace: true}}
nodeStatusUpdateFrequency: 3s
nodeLeaseDurationSeconds: 12
oomScoreAdj: 0
volumePluginDir: /var/lib/kubelet/volume-plugins
maxPods: 40
"""


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node of the lab, which can be lost and come back."""

    name: str
    number: int
    """The last byte of its address, and the third one of its pods' addresses."""
    folder: Path
    programs: LabPrograms

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def zone(self) -> str:
        return f"zone-{self.name}"

    def create(self, images: Path) -> None:
        """Write what the node starts with: its files, and the images of a store."""
        _create_folder(self.folder)
        (self.folder / "cni").mkdir()
        (self.folder / "resolv.conf").write_text(f"nameserver {DNS_ADDRESS}\n")
        (self.folder / "cni" / "10-pods.conflist").write_text(NETWORK.format(name=self.name, number=self.number))
        kubelet = KUBELET.format(
            address=self.address,
            cgroup=f"{self.programs.cgroups.name}/{self.name}",
            dns=DNS_ADDRESS,
            folder=self.folder,
            socket=CONTAINERD_SOCKET,
        )
        (self.folder / "kubelet.yaml").write_text(kubelet)
        copy_store(images, self.folder / STORE)

    def start_containerd(self) -> None:
        """Start containerd in a new mount namespace."""
        _start_containerd(self.programs, self._containerd, self.folder, self.name)

    def start_kubelet(self, kubeconfig: Path) -> None:
        """Start the kubelet in containerd's mount namespace, or neither would see what the other one mounts."""
        _wait_for_containerd(self.programs, self._containerd)
        labels = f"topology.kubernetes.io/zone={self.zone},topology.kubernetes.io/region=lab"
        command = [str(kubernetes_program()), "kubelet", f"--config={self.folder / 'kubelet.yaml'}"]
        command += [f"--kubeconfig={kubeconfig}", f"--hostname-override={self.name}", f"--node-ip={self.address}"]
        command += [f"--node-labels={labels}"]
        inside = inside_mounts(self.programs.process(self._containerd))
        self.programs.start(f"kubelet-{self.name}", [*inside, *command], node=self.name)

    def lose(self) -> None:
        """What the cluster sees of a power cut: every process of the node ends at once, and its network is gone."""
        self.programs.kill_all(self.name)
        subprocess.run(["ip", "link", "set", f"pods-{self.name}", "down"], check=True)

    def come_back(self, kubeconfig: Path) -> None:
        """Start the lost node again, with the files that it had."""
        subprocess.run(["ip", "link", "set", f"pods-{self.name}", "up"], check=True)
        self.start_containerd()
        self.start_kubelet(kubeconfig)

    @property
    def _containerd(self) -> str:
        return f"containerd-{self.name}"


def import_images(programs: LabPrograms, folder: Path, store: Path, archives: Sequence[Path]) -> None:
    """Unpack archives of images into a new store. A containerd with its files in `folder` runs for that alone."""
    _create_folder(folder)
    name = "containerd-images"
    process = _start_containerd(programs, name, folder)
    _wait_for_containerd(programs, name)
    for archive in archives:
        command = [*programs.cgroups.joining(), *inside_mounts(process), "ctr", "--address", CONTAINERD_SOCKET]
        command += ["--namespace", "k8s.io"]
        done = subprocess.run([*command, "images", "import", str(archive)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(f"{done.stdout}{done.stderr}\ncontainerd does not take the image {archive}")
    programs.stop(name)
    shutil.rmtree(store)
    (folder / STORE).rename(store)


def inside_mounts(process: int) -> list[str]:
    """The words before a command that is to run in a process's mount namespace."""
    return ["nsenter", "--target", str(process), "--mount", "--"]


def _create_folder(folder: Path) -> None:
    """Make the folder of a node, with what a containerd needs."""
    (folder / "var" / "lib").mkdir(parents=True)
    (folder / "var" / "run").symlink_to("/run")
    (folder / "settings").mkdir()
    for path, value in KERNEL_SETTINGS.items():
        (folder / "settings" / path.rsplit("/", 1)[1]).write_text(f"{value}\n")
    (folder / "containerd.toml").write_text(CONTAINERD.format(pause=PAUSE_IMAGE, folder=folder))


def _start_containerd(programs: LabPrograms, name: str, folder: Path, node: str = "") -> int:
    mounts = MOUNTS.format(settings=" ".join(KERNEL_SETTINGS))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "sh", str(folder)]
    command += ["containerd", "--config", str(folder / "containerd.toml"), "--log-level", "warn"]
    return programs.start(name, command, node=node)


def _wait_for_containerd(programs: LabPrograms, name: str) -> None:
    asking = [*inside_mounts(programs.process(name)), "ctr", "--address", CONTAINERD_SOCKET, "version"]
    programs.wait_until(
        name,
        "an answer of containerd",
        lambda: subprocess.run(asking, capture_output=True, check=False).returncode == 0,
    )
