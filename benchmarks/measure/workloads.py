"""Workloads of the OpenMessaging Benchmark, by a client of our own: its jars are in no Maven repository.

Rule: as there, what is counted is what was acknowledged and read once the warm-up was over, whenever it was sent.
"""

from benchmarks.cases import Case
from benchmarks.measure import process_usage
from benchmarks.measure.rows import Bench, cpu_figures, memory_figures, topic_of
from benchmarks.peers.brokers import Peer


def steady(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    """OPENMESSAGING: a producer at a rate, and the consumer that follows it. CPU is that of serving both."""
    with topic_of(peer, case.partitions) as topic:
        process_usage.reset_peak(peer.pid)
        measured = bench.tools.steady(
            peer.bootstrap,
            topic,
            case,
            peer.cpu_seconds,
            warm_up_seconds=bench.scale.workload_warm_up_seconds,
            seconds=bench.scale.workload_seconds,
        )
        records = int(measured.figures["records"])
        cpu = measured.after - measured.before
        return measured.figures | cpu_figures(cpu, records, case.value_bytes) | memory_figures(peer)
