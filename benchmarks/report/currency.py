"""Figures in the units that other brokers publish: MiB/s per vCPU, and what requests to the store cost per GiB.

Rule: pure, and derived from what a row measured; docs/design/benchmarks.md defines each of them.
"""

from benchmarks.cases import MIB, PeerName
from benchmarks.prices import requests_usd
from benchmarks.report.results import RowResult

GB = 1_000_000_000
STORE_PEERS = (PeerName.MINIO, PeerName.CLUSTER)
"""The peers with an object store. No row has both."""


def mib_per_s_per_vcpu(cpu_s_per_gb: float | None) -> float | None:
    """Throughput divided by the CPU seconds a second that the broker took for it, which is one divided by CPU per byte.

    `cpu_s_per_gb`: CPU seconds for 10^9 bytes of values. None where none was counted.
    """
    return GB / MIB / cpu_s_per_gb if cpu_s_per_gb else None


def usd_per_gib(row: RowResult) -> float | None:
    """The price of a row's requests per GiB: all of them in cluster rows, else PUTs alone."""
    usd_per_tib = store_figure(row, "usd_per_tib")
    if usd_per_tib is not None:
        return usd_per_tib / 1024
    puts_per_gib = store_figure(row, "puts_per_gib")
    return None if puts_per_gib is None else requests_usd(puts=puts_per_gib)


def store_figure(row: RowResult, metric: str) -> float | None:
    """A figure of the peer with an object store."""
    return next((value for peer in STORE_PEERS if (value := row.figure(peer, metric)) is not None), None)
