"""Handshakes of mutual TLS, as many at once as clients make that all reconnect; and the memory of idle connections.

Storms follow each other, first alone, for what a handshake costs, then beside a producer, for what others notice.
Clients are in a process of their own (`benchmarks.measure.handshake_storm`) on the same cores.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.measure import process_usage, rows
from benchmarks.measure.rows import Bench
from benchmarks.peers.brokers import Peer, PenstockPeer
from benchmarks.peers.tls import TlsListener
from tests.support.processes import ProcessFailed
from tools.steps import ROOT

HANDSHAKES_AT_ONCE = 600
STORM_SECONDS = 6.0
CLIENT_SECONDS_MAX = 120.0
KIB_PER_MIB = 1024


def measure(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    """What a handshake costs the broker, and a producer's latency alone and beside the storms."""
    tls = peer.tls
    run_storms(tls, 1.0)  # warms the broker
    main_before, before = process_usage.main_thread_cpu_seconds(peer.pid), peer.cpu_seconds()
    alone = run_storms(tls, STORM_SECONDS)
    main_s, cpu_s = process_usage.main_thread_cpu_seconds(peer.pid) - main_before, peer.cpu_seconds() - before
    figures = {
        "handshake_cpu_ms": cpu_s / alone["done"] * 1000,
        "handshakes_per_s": alone["done"] / alone["seconds"],
        "handshakes_failed": alone["failed"],
    }
    if isinstance(peer, PenstockPeer):  # Kafka's threads are many, and none of them is the one
        figures |= {"handshake_loop_ms": main_s / alone["done"] * 1000, "idle_kib": idle_kib(peer, tls)}
    figures["calm_p99_ms"] = rows.produce(bench, peer, case, tls=tls)["p99_ms"]
    with storms(tls):
        beside = rows.produce(bench, peer, case, tls=tls)
    return figures | {"p50_ms": beside["p50_ms"], "p99_ms": beside["p99_ms"]}


def idle_kib(peer: Peer, tls: TlsListener) -> float:
    """The resident memory of an idle connection over TLS, above that of one over plaintext, in KiB."""
    sizes: list[float] = []
    for words in (("--port", str(peer.port)), (*_client_words(tls), "--port", tls.port)):
        before = process_usage.memory_mib(peer.pid)
        with _client(*words, "--hold") as client:
            assert client.stdout is not None
            open_count = json.loads(client.stdout.readline())["open"]
            if not open_count:
                raise ProcessFailed("no connection of those that were to stay idle was accepted")
            sizes.append((process_usage.memory_mib(peer.pid) - before) / open_count)
    plaintext, encrypted = sizes
    return (encrypted - plaintext) * KIB_PER_MIB


def run_storms(tls: TlsListener, seconds: float) -> dict[str, float]:
    """Sums over storms that follow each other for so long."""
    with _client(*_client_words(tls), "--port", tls.port, "--seconds", str(seconds)) as client:
        output, _ = client.communicate(timeout=CLIENT_SECONDS_MAX)
    return summed(output.splitlines())


def summed(lines: Sequence[str]) -> dict[str, float]:
    """The sums of the storms' lines."""
    storms_seen = [json.loads(line) for line in lines]
    return {name: sum(storm[name] for storm in storms_seen) for name in ("done", "failed", "seconds")}


@contextlib.contextmanager
def storms(tls: TlsListener) -> Iterator[None]:
    """Storms until the block ends."""
    with _client(*_client_words(tls), "--port", tls.port, "--seconds", str(CLIENT_SECONDS_MAX)):
        yield


def _client_words(tls: TlsListener) -> Sequence[str | Path]:
    return ["--ca", tls.ca_path, "--cert", tls.client.cert, "--key", tls.client.key]


@contextlib.contextmanager
def _client(*words: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """The client's process, which is ended with the block."""
    count = ("--count", str(HANDSHAKES_AT_ONCE))
    command = [sys.executable, "-m", "benchmarks.measure.handshake_storm", *map(str, words), *count]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        try:
            yield client
        finally:
            client.kill()
