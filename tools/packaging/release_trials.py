"""Trials of a release's files: each is used as its reader would use it, before checksums are written.

Rule: a trial that cannot be done here is reported as NOT RUN, with the reason. It never counts as passed.
A broker listens on this machine's loopback alone, has its data in a temporary folder, and is ended by its process id.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from iceberg_export.spark.package import ENTRY, JOBS, libraries
from tools import pins
from tools.environment import UV_SETTINGS, ensure_uv
from tools.kubernetes.helm import ensure_helm
from tools.packaging.oci import unpack_archive
from tools.steps import ROOT, SetupFailed, report, run, say

READY_SECONDS_MAX = 120
"""Until a broker is ready: the wheel's compiles its modules and kernels, on a machine that may be busy."""
STOP_SECONDS_MAX = 30
CLIENT_SECONDS_MAX = 60
READY = re.compile(r"^ready kafka=(\S+) http=(\S+)$", re.MULTILINE)
RUNTIMES = ("runc", "crun")
"""Programs that run a bundle of the OCI runtime specification."""
OWN_VARIABLES = ("AWS_", "NUMBA_", "PENSTOCK_", "PYTHON", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
"""Beginnings of variables of this process that would reach what is tried, and that a user's machine lacks."""
CLUSTER_APIS = [f"--api-versions={api}" for api in ("cert-manager.io/v1", "monitoring.coreos.com/v1")]
"""What a cluster may have beside its own APIs; some values of the chart ask for it."""
CLIENT = """
import sys
from confluent_kafka import Consumer, Producer
bootstrap, value = sys.argv[1], b"a record of the release"
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
errors = []
producer.produce("trial", value, on_delivery=lambda error, message: error and errors.append(error))
assert producer.flush(SECONDS) == 0 and not errors, f"not acknowledged: {errors}"
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "trial", "auto.offset.reset": "earliest"})
consumer.subscribe(["trial"])
for _ in range(SECONDS):
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        assert message.value() == value, message.value()
        consumer.close()
        break
else:
    sys.exit("no record came back")
""".replace("SECONDS", str(CLIENT_SECONDS_MAX))
"""Produces one record, and reads it in a group."""


def try_wheel(wheel: Path, work: Path) -> None:
    """Start a broker from the wheel in an environment of its own, with the newest libraries, and use it by a client."""
    command = [str(word) for word in (ensure_uv(), "tool", "run", "--isolated", "--from", wheel, "penstock")]
    run("wheel as a tool", ["env", *_without_own_variables(), *command, "--version"], env=UV_SETTINGS)
    address = f"127.0.0.1:{_free_port()}"
    options = ["--data-dir", str(work / "wheel-data"), "--listen", address, "--http", f"127.0.0.1:{_free_port()}"]
    with broker("the wheel's broker", [*command, "run", *options], work / "wheel.log"):
        use(address)
    report("wheel", "served", wheel)


def try_image(archive: Path, work: Path) -> str | None:
    """Start a broker from the image by an OCI runtime, without rights and with a read-only root; use it by a client.

    Returns why that cannot be done here, or None if the trial passed.
    """
    runtime = next((name for name in RUNTIMES if shutil.which(name)), None)
    if runtime is None or os.geteuid() != 0:
        lacking = f"none of {', '.join(RUNTIMES)} is installed" if runtime is None else f"{runtime} needs root here"
        say(f"  image                        NOT RUN        {lacking}")
        return lacking
    bundle = work / "bundle"
    (bundle / "rootfs").mkdir(parents=True)
    bundle.chmod(0o755)
    config = unpack_archive(archive, bundle / "rootfs")["config"]
    data = work / "image-data"
    data.mkdir()
    uid, gid = map(int, config["User"].split(":"))
    os.chown(data, uid, gid)
    address = f"127.0.0.1:{_free_port()}"
    words = ["run", "--data-dir", "/data", "--listen", address, "--http", f"127.0.0.1:{_free_port()}"]
    (bundle / "config.json").write_text(json.dumps(runtime_config(config, words, data)), encoding="utf-8")
    name = f"penstock-release-{os.getpid()}"
    try:
        with broker("the image's broker", [runtime, "run", "--bundle", str(bundle), name], work / "image.log"):
            use(address)
    finally:
        subprocess.run([runtime, "delete", "--force", name], capture_output=True, check=False)
    report("image", f"served ({runtime})", archive)
    return None


def runtime_config(config: Mapping[str, Any], words: Sequence[str], data: Path) -> dict[str, Any]:
    """A bundle's config.json for an image's configuration (runtime-spec 1.0, config.md): its user has no capability,
    its root is read-only, `/data` is the folder `data`, and its network is this machine's.
    """
    uid, gid = map(int, config["User"].split(":"))
    tmpfs = {"type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": uid, "gid": gid},
            "args": [*config["Entrypoint"], *words],
            "env": list(config["Env"]),
            "cwd": config["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/tmp", **tmpfs},  # noqa: S108 - the container's own
            {"destination": "/data", "type": "bind", "source": str(data), "options": ["rbind", "rw"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts")]},
    }


def try_chart(chart: Path, version: str) -> None:
    """Lint and render the packed chart; the pods have to take the image of this release."""
    helm = ensure_helm()
    for values in sorted((ROOT / "deploy" / "chart" / "ci").glob("*.yaml")):
        run("chart", [helm, "lint", chart, "--values", values])
        command: list[str | Path] = [helm, "template", "kafka", chart, "--values", values, *CLUSTER_APIS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(f"{done.stderr}\nthe chart does not render with {values}")
        if not re.search(rf'^ +image: "?\S*penstock:{re.escape(version)}"?$', done.stdout, re.MULTILINE):
            raise SetupFailed(f"with {values} the chart does not run penstock:{version}: see its appVersion")
    report("chart", "renders", chart)


def try_spark_archive(archive: Path) -> None:
    """Import the source and the jobs from the archive, where nothing but Spark and the libraries for executors is."""
    modules = (ENTRY, *JOBS)
    check = f"import importlib, sys; [importlib.import_module(name) for name in {modules!r}]; " + (
        f"assert all({str(archive)!r} in sys.modules[name].__file__ for name in {modules!r})"
    )
    command = _apart([f"pyspark=={_locked('pyspark')}", *libraries()])
    run(
        "archive for Spark",
        ["env", *_without_own_variables(), f"PYTHONPATH={archive}", *command, check],
        env=UV_SETTINGS,
    )
    report("archive for Spark", "loads", archive)


def try_contents(contents: Path) -> None:
    """Read the list of the image's contents: each package has a name, a version and a package URL."""
    document = json.loads(contents.read_text(encoding="utf-8"))
    urls = [
        reference["referenceLocator"]
        for package in document["packages"]
        for reference in package["externalRefs"]
        if package["name"] and package["versionInfo"]
    ]
    kinds = {kind: sum(url.startswith(f"pkg:{kind}/") for url in urls) for kind in ("deb", "pypi")}
    if not all(kinds.values()) or len(urls) != len(document["packages"]):
        raise SetupFailed(
            f"{contents} lists {kinds} of {len(document['packages'])} packages: see tools/packaging/sbom.py"
        )
    report("list of contents", f"{len(urls)} packages", contents)


@contextlib.contextmanager
def broker(title: str, command: Sequence[str], log: Path) -> Iterator[None]:
    """A broker that is ready, until the block ends; then it has to stop by itself, with status 0."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["env", *_without_own_variables(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **UV_SETTINGS},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not READY.search(log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SetupFailed(f"{_tail(log)}\n{title} was not ready after {READY_SECONDS_MAX} s, or ended before")
            time.sleep(0.1)
        yield
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
        if process.returncode != 0:
            raise SetupFailed(f"{_tail(log)}\n{title} did not stop in {STOP_SECONDS_MAX} s with status 0")
    finally:
        with contextlib.suppress(ProcessLookupError):  # its children too, which uv and a runtime start
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def use(address: str) -> None:
    """Produce a record to a broker, and consume it, by librdkafka."""
    command = _apart([f"confluent-kafka=={pins.LIBRDKAFKA_WHEELS['x86_64'][1]}"])
    run("client", ["env", *_without_own_variables(), *command, CLIENT, address], env=UV_SETTINGS)


def _apart(requirements: Sequence[str]) -> list[str | Path]:
    """The command line of a Python that has these packages alone, and not the checkout; a script follows."""
    packages = [word for requirement in requirements for word in ("--with", requirement)]
    return [ensure_uv(), "run", "--no-project", "--isolated", *packages, "python", "-Pc"]


def _locked(name: str) -> str:
    """The version of a package in uv.lock."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return str(next(package["version"] for package in packages if package["name"] == name))


def _without_own_variables() -> list[str]:
    """Options of env(1) that remove what would reach a trial from this machine."""
    return [word for name in os.environ if name.startswith(OWN_VARIABLES) for word in ("-u", name)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])
