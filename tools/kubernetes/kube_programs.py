"""The programs of a real Kubernetes, which the lab of tests runs. `python3 -m tools.kubernetes.kube_programs` has them.

Kubernetes' five programs are one program of a main module of our own, and so is CoreDNS with the plugins that a cluster
needs: both are built from Go modules, once, in a quarter of an hour of a processor. helm and kubectl come out of a
wheel (`tools.kubernetes.helm`). What a node runs containers with is Debian's, and installed by apt, which needs root.

Rule: as everywhere, versions are those of `tools.pins`; Debian's are those of the machine's release.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools import pins
from tools.go_servers import ensure_etcd, ensure_go, ensure_minio, go_settings
from tools.kubernetes.helm import ensure_helm
from tools.steps import SetupFailed, cache_folder, ensure, main, report, run, say

KUBERNETES_MODULE = "k8s.io/kubernetes"
KUBERNETES_MAIN = """\
// Kubernetes' programs in one: the first argument is the name of one of them.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": manager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "the first argument names a program of Kubernetes: kube-apiserver, kubelet or others")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(cli.Run(programs[os.Args[0]]()))
}
"""
COREDNS_MAIN = """\
// CoreDNS with the plugins that answer for a cluster, and nothing that asks other servers.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() { dnsserver.Directives = []string{"errors", "log", "health", "ready", "kubernetes"} }

func main() { coremain.Run() }
"""
PAUSE_MAIN = """\
// A pod's first process: it keeps the pod's namespaces until it is to end, and needs no file of an image.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
"""
STAGED = re.compile(r"^\s*(?:replace )?(\S+) => \./staging/", re.MULTILINE)
DEBIAN_PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""What a node needs besides the kubelet, and the package of Debian that has it."""


def kubernetes_program() -> Path:
    """Where `ensure_kubernetes` puts the program."""
    return cache_folder() / f"kubernetes-{pins.KUBERNETES}" / "kube"


def coredns_program() -> Path:
    """Where `ensure_coredns` puts the program."""
    return cache_folder() / f"coredns-{pins.COREDNS}" / "coredns"


def pause_program() -> Path:
    """Where `ensure_pause` puts the program."""
    digest = hashlib.sha256(PAUSE_MAIN.encode()).hexdigest()[:8]
    return cache_folder() / f"pause-{digest}" / "pause"


def ensure_kubernetes() -> Path:
    """Path of Kubernetes' programs in one, 126 MB: twelve minutes of processor time.

    The compiled packages, 2.9 GB, are kept until the build is done, so that one that was cut off goes on.
    """

    def build(folder: Path) -> None:
        go = ensure_go()
        settings = {**go_settings(folder), "GOCACHE": str(cache_folder() / "go" / "kubernetes-build")}
        module = f"{KUBERNETES_MODULE}@{pins.KUBERNETES}"
        command: list[str | Path] = [go, "mod", "download", "-json", module]
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(f"{done.stdout}{done.stderr}\nKubernetes' module cannot be fetched")
        work = _work("kubernetes", KUBERNETES_MAIN)
        (work / "go.mod").write_text(
            kubernetes_module(Path(json.loads(done.stdout)["GoMod"]).read_text(encoding="utf-8"))
        )
        _build("kubernetes", work, folder / "kube", settings, kubernetes_flags())
        shutil.rmtree(settings["GOCACHE"], ignore_errors=True)

    return ensure(f"Kubernetes {pins.KUBERNETES}", kubernetes_program().parent, build) / "kube"


def ensure_coredns() -> Path:
    """Path of CoreDNS: three minutes of processor time."""

    def build(folder: Path) -> None:
        go = ensure_go()
        settings = go_settings(folder)
        work = _work("coredns", COREDNS_MAIN)
        for arguments in (["mod", "init", "coredns"], ["get", f"github.com/coredns/coredns@{pins.COREDNS}"]):
            run("coredns", [go, "-C", work, *arguments], env=settings, attempts=2)
        _build("coredns", work, folder / "coredns", settings, "-s -w")

    return ensure(f"CoreDNS {pins.COREDNS}", coredns_program().parent, build) / "coredns"


def ensure_pause() -> Path:
    """Path of the program that holds the namespaces of a pod. It takes ten seconds, and nothing is fetched for it."""

    def build(folder: Path) -> None:
        work = _work("pause", PAUSE_MAIN)
        run("pause", [ensure_go(), "-C", work, "mod", "init", "pause"], env=go_settings(folder))
        _build("pause", work, folder / "pause", go_settings(folder), "-s -w")

    return ensure("the pause program", pause_program().parent, build) / "pause"


def kubernetes_module(published: str) -> str:
    """The go.mod of our main module. `published`: that of Kubernetes, whose parts lie beside it in its own repository,
    and are modules of their own, with the version 0.MINOR.PATCH, everywhere else.
    """
    parts = STAGED.findall(published)
    staged = f"v0.{pins.KUBERNETES.partition('.')[2]}"
    lines = ["module kubernetes", "", *re.findall(r"^(?:go|godebug) .+$", published, re.MULTILINE), ""]
    lines += [f"require {KUBERNETES_MODULE} {pins.KUBERNETES}", ""]
    lines += [f"replace {part} => {part} {staged}" for part in parts]
    return "\n".join(lines) + "\n"


def kubernetes_flags() -> str:
    """Flags of the linker. Without a version in its programs a cluster is none that the chart accepts."""
    major, minor, _patch = pins.KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": pins.KUBERNETES, "gitMajor": major, "gitMinor": minor}
    settings = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    return " ".join(["-s", "-w", *settings])


def missing_packages() -> list[str]:
    """Debian's packages that this machine lacks."""
    return sorted({package for program, package in DEBIAN_PROGRAMS.items() if shutil.which(program) is None})


def ensure_debian_programs() -> None:
    """Install what `missing_packages` says. Raises `SetupFailed` with the command if this process is not root's."""
    packages = missing_packages()
    if not packages:
        report("containerd, runc, CNI", "is there", Path("/usr"))
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupFailed(
            f"a node of Kubernetes lacks {', '.join(packages)}. As root, on Debian:\n  {' '.join(command)}"
        )
    say(f"  installing packages of Debian on this machine: {' '.join(packages)}")
    run("containerd, runc, CNI", command, env={"DEBIAN_FRONTEND": "noninteractive"}, attempts=2)
    report("containerd, runc, CNI", "installed", Path("/usr"))


def _work(name: str, program: str) -> Path:
    """An empty folder with the source of a main module."""
    work = cache_folder() / "go" / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "main.go").write_text(program)
    return work


def _build(title: str, work: Path, program: Path, settings: Mapping[str, str], flags: str) -> None:
    go = ensure_go()
    for arguments in (["mod", "tidy"], ["build", f"-ldflags={flags}", "-o", str(program), "."]):
        run(title, [go, "-C", work, *arguments], env=settings, attempts=2)


def _main() -> None:
    ensure_debian_programs()
    ensure_helm()
    ensure_etcd()
    ensure_minio()
    ensure_pause()
    ensure_coredns()
    ensure_kubernetes()


if __name__ == "__main__":
    main(_main)
