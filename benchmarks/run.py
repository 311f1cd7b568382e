"""Runs rows: the peers take turns in every round, and a row that fails fails alone.

Rule: progress goes to stderr. Whatever happens, the processes are ended and the temporary data is removed.
"""

import concurrent.futures
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from benchmarks.cases import Case, Kind, PeerName
from benchmarks.measure import agent as measure_agent
from benchmarks.measure import cluster as measure_cluster
from benchmarks.measure import groups as measure_groups
from benchmarks.measure import relays, tls_handshakes
from benchmarks.measure import rights as measure_rights
from benchmarks.measure import rows as measure
from benchmarks.measure import tls as measure_tls
from benchmarks.measure import transactions as measure_transactions
from benchmarks.measure import workloads as measure_workloads
from benchmarks.measure.rows import Bench
from benchmarks.peers.brokers import KafkaPeer, Peer, PenstockPeer
from benchmarks.peers.cluster import ClusterServices
from benchmarks.peers.java_tools import JavaTools
from benchmarks.peers.minio import BUCKET, MinioServer
from benchmarks.peers.tool_output import UnreadableOutput
from benchmarks.report.results import RowResult
from benchmarks.report.table import row_line
from benchmarks.schedule import Progress, Scale, rounds_of, row_seconds
from tests.support.processes import ProcessFailed

FAILURES = (
    KafkaException,
    measure_rights.NotEnforced,
    ProcessFailed,
    UnreadableOutput,
    OSError,
    concurrent.futures.TimeoutError,
    subprocess.SubprocessError,
)
PATH = re.compile(r"/[\w.+@-]+(?:/[\w.+@-]+)+")
FAILURE_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that is up during a run."""

    bench: Bench
    peers: dict[PeerName, Peer]
    clusters: ClusterServices | None
    round_count: int


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def started(scale: Scale, names: Sequence[PeerName], round_count: int) -> Iterator[Run]:
    """Starts and warms the peers; at the end ends them and removes their data. Raises `SetupFailed`, `FAILURES`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        minio = MinioServer(folder / "minio-server")
        stack.callback(minio.stop)
        tools_folder = folder / "tools"
        tools_folder.mkdir()
        tools = JavaTools.prepare(tools_folder)
        bench = Bench(tools=tools, minio=minio, scale=scale)
        peers: dict[PeerName, Peer] = {}
        clusters: ClusterServices | None = None
        if PeerName.CLUSTER in names:
            clusters = stack.enter_context(ClusterServices(folder / PeerName.CLUSTER.value, minio))
        for name in (name for name in names if name is not PeerName.CLUSTER):
            peer = _peer(name, folder / name.value, bench)
            stack.callback(peer.remove)
            say(f"starting and warming {name.value}")
            peer.start()
            measure.warm_up(bench, peer)
            peers[name] = peer
        yield Run(bench=bench, peers=peers, clusters=clusters, round_count=round_count)


def measure_rows(run: Run, cases: Sequence[Case], deadline: float) -> Iterator[RowResult]:
    """Measures row after row. Rows that would begin after `deadline` (monotonic seconds) are left out."""
    names = list(PeerName)
    progress = Progress(expected=[row_seconds(case, run.bench.scale, names, run.round_count) for case in cases])
    for number, case in enumerate(cases, start=1):
        began = time.monotonic()
        if began > deadline:
            say(f"the time is over: {len(cases) - number + 1} rows are left out; --resume measures them")
            return
        row = measure_row(run, case)
        progress.done(time.monotonic() - began)
        say(f"[{number}/{len(cases)}, {math.ceil(progress.seconds_left / 60)} min left] {row_line(row)}")
        yield row


def measure_row(run: Run, case: Case) -> RowResult:
    """One row, all rounds. Never raises one of `FAILURES`: the row tells."""
    rounds: dict[PeerName, list[dict[str, float]]] = {}
    try:
        for name, figures in _rounds(run, case):
            rounds.setdefault(name, []).append(figures)
    except FAILURES as error:
        return RowResult(case=case, rounds=rounds, failure=failure_text(error))
    return RowResult(case=case, rounds=rounds)


def _rounds(run: Run, case: Case) -> Iterator[tuple[PeerName, dict[str, float]]]:
    if case.agents:
        yield from _cluster_rounds(run, case)
        return
    peers = [run.peers[name] for name in case.peers if name in run.peers]
    for peer in run.peers.values():
        if case.kind is Kind.COLD_START:
            # What a process has loaded stays in the page cache.
            peer.stop()
        else:
            peer.start()
    with ExitStack() as stack:
        measurements = [(peer.name, stack.enter_context(_measurement(run.bench, peer, case))) for peer in peers]
        for _ in range(rounds_of(case, run.round_count)):
            for name, measurement in measurements:
                yield name, measurement()


def _cluster_rounds(run: Run, case: Case) -> Iterator[tuple[PeerName, dict[str, float]]]:
    """The agents are there for all rounds of the row."""
    assert run.clusters is not None, "a row's peers are started before it"
    if case.kind is Kind.CLUSTER_RELAY:
        with relays.sharing(run.clusters, case.agents) as cluster:
            for _ in range(rounds_of(case, run.round_count)):
                yield PeerName.CLUSTER, relays.measure(run.bench, cluster)
        return
    with run.clusters.running(case.agents, case.flush_interval_ms) as cluster:
        measure_cluster.warm_up(run.bench, cluster, case)
        for _ in range(rounds_of(case, run.round_count)):
            match case.kind:
                case Kind.CLUSTER_COST:
                    yield PeerName.CLUSTER, measure_cluster.cost(run.bench, cluster, case)
                case Kind.CLUSTER_LATENCY:
                    yield PeerName.CLUSTER, measure_cluster.latency(run.bench, run.clusters, cluster, case)
                case _:
                    yield PeerName.CLUSTER, measure_cluster.produce(run.bench, cluster, case)


@contextmanager
def _measurement(  # noqa: C901 - one arm per kind
    bench: Bench, peer: Peer, case: Case
) -> Iterator[Callable[[], dict[str, float]]]:
    """What measures a row on a peer once. What all of its rounds share is there inside the `with` block."""
    match case.kind:
        case Kind.CONSUME_MEMORY | Kind.CONSUME_ARCHIVE:
            with measure.loaded(bench, peer, case) as topics:
                yield lambda: measure.consume(bench, peer, case, topics)
        case Kind.IDLE:
            yield lambda: measure_agent.idle(bench, peer)
        case Kind.GROUPS:
            yield lambda: measure_groups.groups(bench, peer)
        case Kind.TRANSACTIONS:
            yield lambda: measure_transactions.produce(bench, peer, case)
        case Kind.COMMIT:
            yield lambda: measure_transactions.commit(bench, peer, case)
        case Kind.OPENMESSAGING:
            yield lambda: measure_workloads.steady(bench, peer, case)
        case Kind.RAW_PUT:
            yield lambda: bench.minio.measure_puts(bench.scale.megabytes)
        case Kind.END_TO_END:
            yield lambda: measure.end_to_end(bench, peer, case)
        case Kind.PRODUCE | Kind.PRODUCE_BULK | Kind.PRODUCE_PACED | Kind.LATENCY:
            yield lambda: measure.produce(bench, peer, case)
        case Kind.PRODUCE_SUSTAINED:
            yield lambda: measure_agent.sustained(bench, peer, case)
        case Kind.TLS_PRODUCE:
            with measure_tls.encrypted(bench, peer):
                yield lambda: measure_tls.produce(bench, peer, case)
        case Kind.TLS_CONSUME:
            with measure_tls.encrypted(bench, peer), measure.loaded(bench, peer, case) as topics:
                yield lambda: measure_tls.consume(bench, peer, case, topics)
        case Kind.TLS_HANDSHAKES:
            with measure_tls.encrypted(bench, peer, is_mutual=True):
                yield lambda: tls_handshakes.measure(bench, peer, case)
        case Kind.TLS_START:
            assert isinstance(peer, PenstockPeer)
            yield lambda: measure_tls.secure_start(peer)
        case Kind.RIGHTS_PRODUCE:
            with measure_rights.turns(bench, peer, lambda folder: _peer(peer.name, folder, bench)) as brokers:
                yield lambda: measure_rights.produce(bench, brokers, case)
        case Kind.RIGHTS_CONSUME:
            with (
                measure_rights.turns(bench, peer, lambda folder: _peer(peer.name, folder, bench)) as brokers,
                measure_rights.loaded(bench, brokers, case) as topics,
            ):
                yield lambda: measure_rights.consume(bench, brokers, case, topics)
        case Kind.METADATA:
            yield lambda: measure_agent.metadata(bench)
        case Kind.OBJECT_REQUESTS:
            assert isinstance(peer, PenstockPeer)
            yield lambda: measure_agent.object_requests(bench, peer, case)
        case Kind.COLD_START:
            assert isinstance(peer, PenstockPeer)
            yield lambda: measure_agent.cold_start(peer)
        case Kind.CLUSTER_PRODUCE | Kind.CLUSTER_COST | Kind.CLUSTER_LATENCY | Kind.CLUSTER_RELAY:
            raise AssertionError("a cluster is no peer: see _cluster_rounds")


def _peer(name: PeerName, folder: Path, bench: Bench) -> Peer:
    match name:
        case PeerName.KAFKA:
            return KafkaPeer(folder, bench.tools)
        case PeerName.EMBEDDED:
            return PenstockPeer(name, folder)
        case PeerName.MINIO:
            ledger, store = f"sqlite://{folder / 'ledger.sqlite'}", f"s3://{BUCKET}/penstock"
            # Express: at once while nothing is on its way. By default one client would measure a wait of 250 ms.
            places = ("agent", "--name", "bench", "--ledger", ledger, "--store", store, "--flush-interval-ms", "0")
            return PenstockPeer(name, folder, places=places, environment=bench.minio.server.settings)
        case PeerName.CLUSTER:
            raise AssertionError("a cluster is no peer: see _cluster_rounds")


def failure_text(error: Exception) -> str:
    """What failed, in one line and without the paths of this machine."""
    printed = error.output if isinstance(error, subprocess.CalledProcessError | subprocess.TimeoutExpired) else ""
    if isinstance(printed, bytes):
        printed = printed.decode(errors="replace")
    kind = type(error).__name__
    text = " ".join(PATH.sub("PATH", f"{error} {printed or ''}").split())
    return f"{kind}: {text[-FAILURE_CHARACTERS:]}"
