"""What nodes need besides themselves: etcd, Kubernetes' control plane, kube-proxy, DNS, and a bucket for Penstock.

All of it are processes in the lab's network namespace. The bucket and the names live outside of the nodes on purpose:
a lost node then takes agents away, and nothing that a real cluster would have elsewhere.

Rule: tokens and passwords are no secrets here, for nothing outside of the namespace reaches what they open.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tools.go_servers import etcd_program, minio_program
from tools.kube_lab.nodes import LabNode
from tools.kube_lab.programs import LabPrograms
from tools.kubernetes.kube_programs import coredns_program, kubernetes_program

HOST_ADDRESS = "10.77.0.1"
"""Of the control plane and the bucket; DNS has the same."""
SERVICE_NETWORK = "10.78.0.0/24"
POD_NETWORKS = "10.77.0.0/16"
API_PORT, ETCD_PORT, MINIO_PORT = 6443, 2379, 9000
BUCKET, KEY, SECRET = "penstock", "penstock", "penstock-secret"
STORE_ENDPOINT = f"http://{HOST_ADDRESS}:{MINIO_PORT}"
ACCOUNTS = {
    "admin": ("admin", "system:masters"),
    "manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", "system:masters"),
    "proxy": ("system:kube-proxy", "system:masters"),
    "dns": ("coredns", "system:masters"),
}
"""Name and group of each account that is no node."""
COREFILE = """\
. {
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig KUBECONFIG
    pods insecure
    ttl 1
  }
}
"""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The programs that are no node's."""

    folder: Path
    programs: LabPrograms

    def kubeconfig(self, account: str) -> Path:
        """The file by which an account, or a node by its name, reaches the API."""
        return self.folder / f"{account}.conf"

    def create(self, nodes: Sequence[LabNode]) -> None:
        """Write keys, tokens and files of accounts, and make the network between the nodes."""
        self.folder.mkdir(parents=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._tokens_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
        accounts = {**ACCOUNTS, **{node.name: (f"system:node:{node.name}", "system:nodes") for node in nodes}}
        rows = []
        for number, (account, (user, group)) in enumerate(accounts.items()):
            rows.append(f"{account}-token,{user},{number},{group}\n")
            self.kubeconfig(account).write_text(json.dumps(_kubeconfig(f"{account}-token")))
        self._tokens.write_text("".join(rows))
        (self.folder / "Corefile").write_text(COREFILE.replace("KUBECONFIG", str(self.kubeconfig("dns"))))
        addresses = [HOST_ADDRESS, *(node.address for node in nodes)]
        for words in (
            "link add nodes type bridge",
            *(f"address add {address}/24 dev nodes" for address in addresses),
            "link set nodes up",
            # No packet leaves by it: kube-proxy replaces the addresses of Services, once there is a route to them.
            f"route add {SERVICE_NETWORK} dev nodes",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        for setting in ("ip_forward", "conf/all/route_localnet"):
            Path("/proc/sys/net/ipv4", setting).write_text("1")

    def start_api(self) -> None:
        """Start etcd and the API's server. Returns when it is ready."""
        client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PORT + 1}"
        etcd = [
            str(etcd_program()),
            "--data-dir",
            str(self.folder / "etcd"),
            "--log-level",
            "error",
            "--unsafe-no-fsync",
        ]
        etcd += ["--listen-client-urls", client, "--advertise-client-urls", client]
        etcd += [
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        ]
        self.programs.start("etcd", etcd)
        self._start(
            "kube-apiserver",
            f"--etcd-servers={client}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            f"--advertise-address={HOST_ADDRESS}",
            f"--secure-port={API_PORT}",
            f"--cert-dir={self.folder}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens_key}",
            f"--service-account-signing-key-file={self._tokens_key}",
            "--allow-privileged=true",
            # On by default from 1.35 on: pods know their node's zone.
            "--feature-gates=PodTopologyLabelsAdmission=true",
            "--enable-admission-plugins=PodTopologyLabels",
            # Else the API's server would ask a DNS for the nodes' names.
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        )
        self.programs.wait_until("kube-apiserver", "an answer of the API", lambda: _answers(f"{_api()}/readyz"))

    def start_others(self) -> None:
        """Start what needs the API: controllers, scheduler, kube-proxy and DNS."""
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('manager')}",
            f"--service-account-private-key-file={self._tokens_key}",
            f"--root-ca-file={self.folder / 'apiserver.crt'}",
            "--leader-elect=false",
            # A lost node is noticed after 12 s; by default it takes 40.
            "--node-monitor-grace-period=12s",
            "--node-monitor-period=2s",
            "--bind-address=127.0.0.1",
            # It makes this folder; the default is one of the machine.
            f"--flex-volume-plugin-dir={self.folder / 'volume-plugins'}",
        )
        self._start("kube-scheduler", f"--kubeconfig={self.kubeconfig('scheduler')}", "--leader-elect=false")
        # One for all nodes, which share their network.
        self._start(
            "kube-proxy",
            f"--kubeconfig={self.kubeconfig('proxy')}",
            "--hostname-override=a",
            "--proxy-mode=iptables",
            f"--cluster-cidr={POD_NETWORKS}",
            # These are the machine's: 0 leaves them as they are.
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )
        self.programs.start("coredns", [str(coredns_program()), "-conf", str(self.folder / "Corefile")])

    def wait_for_names(self) -> None:
        """Return when DNS answers for the cluster."""
        self.programs.wait_until("coredns", "an answer of DNS", lambda: _answers("http://127.0.0.1:8181/ready"))

    def start_store(self) -> None:
        """Start MinIO with the bucket as it was, or with an empty one."""
        data = self.folder / "minio"
        (data / BUCKET).mkdir(parents=True, exist_ok=True)
        root = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_UPDATE": "off", "MINIO_BROWSER": "off"}
        command = [str(minio_program()), "server", "--quiet", "--address", f"{HOST_ADDRESS}:{MINIO_PORT}", str(data)]
        self.programs.start("minio", command, env=root)
        self.programs.wait_until("minio", "MinIO", lambda: _answers(f"{STORE_ENDPOINT}/minio/health/ready"))

    def kill_store(self) -> None:
        self.programs.kill("minio")

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def _tokens_key(self) -> Path:
        return self.folder / "service-accounts.key"

    def _start(self, program: str, *options: str) -> None:
        # iptables has a lock file in /run, which is the machine's: such programs get an empty one.
        own_run = 'mount --no-mtab -t tmpfs tmpfs /run && exec "$@"'
        separate = ["unshare", "--mount", "--propagation", "private", "sh", "-c", own_run, "sh"]
        self.programs.start(program, [*separate, str(kubernetes_program()), program, *options])


def _api() -> str:
    return f"https://127.0.0.1:{API_PORT}"


def _kubeconfig(token: str) -> dict[str, object]:
    """A kubeconfig. JSON is YAML, too."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": _api(), "insecure-skip-tls-verify": True}}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": "default"}}],
        "current-context": "lab",
    }


def _answers(url: str) -> bool:
    """Whether a server answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=_unverified()) as answer:  # noqa: S310 - written above
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _unverified() -> ssl.SSLContext:
    """TLS to a certificate that the API's server signed itself, on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
