"""A cluster on this machine, to try things with: etcd, MinIO and three agents. Ctrl-C ends all of it.

make cluster ARGS=FOLDER        (or: .venv/bin/python -m tools.local_cluster FOLDER; after make setup-test)

Ports of 127.0.0.1: 9092 to 9094 for clients, 9644 to 9646 for HTTP, 2379 and 2380 for etcd, 9000 for MinIO.

Rule: everything lies in FOLDER (`./penstock-cluster`) and is there again at the next start. Kill an agent, etcd or
MinIO by the process id that is shown, or let it stop (`kill -STOP`), and see what clients notice. What ends is told
and not started again: FOLDER holds a script for each program, which starts it as it was.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tools import go_servers

ETCD_PORT, ETCD_PEER_PORT, MINIO_PORT = 2379, 2380, 9000
KAFKA_PORT, HTTP_PORT = 9092, 9644
AGENTS = ("a", "b", "c")
BUCKET = "penstock"
START_SECONDS_MAX = 60.0
KEY, SECRET = "penstock", "penstock-secret"
PENSTOCK = Path(sys.executable).parent / "penstock"
STORE = {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{MINIO_PORT}",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


def start(
    stack: ExitStack, folder: Path, name: str, command: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program with its log in `folder`, to be ended with the stack; leave a script that starts it again."""
    settings = " ".join(shlex.quote(f"{key}={value}") for key, value in env.items())
    script = folder / f"start-{name}.sh"
    script.write_text(f"cd {shlex.quote(str(folder))} && exec env {settings} {shlex.join(command)}\n")
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True
        )
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Return when `url` answers; exit where the process ends, or time is over."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with urlopen(url, timeout=2) as answer:  # noqa: S310 - loopback, written below
                if answer.status == 200:
                    return
        except (URLError, OSError):
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"nothing answers at {url}: see {log}")
        time.sleep(0.1)


def services(stack: ExitStack, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    """Etcd and MinIO, with an empty bucket where there is none; by name."""
    client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    etcd = [str(go_servers.etcd_program()), "--data-dir", str(folder / "etcd"), "--log-level", "error"]
    etcd += ["--listen-client-urls", client, "--advertise-client-urls", client]
    etcd += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    (folder / "minio" / BUCKET).mkdir(parents=True, exist_ok=True)
    minio = [str(go_servers.minio_program()), "server", "--quiet", "--address", f"127.0.0.1:{MINIO_PORT}"]
    root = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_UPDATE": "off", "MINIO_BROWSER": "off"}
    running = {"etcd": start(stack, folder, "etcd", etcd, {})}
    wait(running["etcd"], f"{client}/health", folder / "etcd.log")
    print(f"etcd      127.0.0.1:{ETCD_PORT}   process {running['etcd'].pid}", flush=True)
    running["minio"] = start(stack, folder, "minio", [*minio, str(folder / "minio")], root)
    wait(running["minio"], f"{STORE['AWS_ENDPOINT_URL']}/minio/health/ready", folder / "minio.log")
    print(f"MinIO     127.0.0.1:{MINIO_PORT}   process {running['minio'].pid}", flush=True)
    return running


def agent_command(row: int, name: str) -> list[str]:
    return [
        *(str(PENSTOCK), "agent", "--name", name, "--zone", name),
        *("--ledger", f"etcd://127.0.0.1:{ETCD_PORT}/try", "--store", f"s3://{BUCKET}/try"),
        *("--listen", f"127.0.0.1:{KAFKA_PORT + row}", "--http", f"127.0.0.1:{HTTP_PORT + row}"),
    ]


def stop_by_signals() -> None:
    """Make Ctrl-C, SIGTERM and the terminal's end a KeyboardInterrupt, or what was started would outlive this."""
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started this with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup started this
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default="penstock-cluster", help="where everything lies (%(default)s)")
    folder = Path(parser.parse_args().folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for program in (go_servers.etcd_program(), go_servers.minio_program()):
        if not program.exists():
            sys.exit("etcd or MinIO is missing: run make setup-test")
    stop_by_signals()
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        running = services(stack, folder)
        for row, name in enumerate(AGENTS):
            running[name] = start(stack, folder, name, agent_command(row, name), STORE)
            http = f"127.0.0.1:{HTTP_PORT + row}"
            wait(running[name], f"http://{http}/ready", folder / f"{name}.log")
            address = f"127.0.0.1:{KAFKA_PORT + row}"
            print(f"agent {name}   {address}   process {running[name].pid}   zone {name}   http {http}", flush=True)
        print(f"\nLogs are in {folder}. Ctrl-C ends all of these, but not what you start again yourself.", flush=True)
        while True:
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    again = f"start it again by: sh {folder / f'start-{name}.sh'}"
                    print(
                        f"{name}, process {process.pid}, has ended with status {process.returncode}; {again}",
                        flush=True,
                    )
            time.sleep(0.5)


if __name__ == "__main__":
    main()
