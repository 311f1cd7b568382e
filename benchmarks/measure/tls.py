"""TLS beside plaintext on one broker: throughput, and the CPU that TLS adds.

Both are measured one after the other on the same process, which listens on both; clients are Kafka's own, and verify
the broker's certificate.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.cases import Case
from benchmarks.measure import rows
from benchmarks.measure.rows import Bench, Loaded
from benchmarks.peers.brokers import Peer, PenstockPeer

SECURE = ("--secure",)


@contextmanager
def encrypted(bench: Bench, peer: Peer, *, is_mutual: bool = False) -> Iterator[None]:
    """The broker with a second listener, which encrypts; warm. At the end it runs without.

    Where it is mutual, clients have to show a certificate.
    """
    with peer.encrypted(is_mutual=is_mutual):
        rows.warm_up(bench, peer)
        yield


def produce(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    plaintext = rows.produce(bench, peer, case)
    return _beside(rows.produce(bench, peer, case, tls=peer.tls), plaintext)


def consume(bench: Bench, peer: Peer, case: Case, topics: Loaded) -> dict[str, float]:
    plaintext = rows.consume(bench, peer, case, topics)
    return _beside(rows.consume(bench, peer, case, topics, tls=peer.tls), plaintext)


def secure_start(peer: PenstockPeer) -> dict[str, float]:
    """The second start with TLS, users, the authorizer and the audit log; the first one creates their files."""
    with peer.restarted_with(SECURE):
        peer.restart()
        return {"start_s": peer.start_seconds}


def _beside(over_tls: dict[str, float], plaintext: dict[str, float]) -> dict[str, float]:
    """The figures over TLS, with those that compare the two."""
    return over_tls | {
        "of_plaintext": over_tls["mb_per_s"] / plaintext["mb_per_s"],
        "plaintext_mb_per_s": plaintext["mb_per_s"],
        "tls_cpu_s_per_gb": over_tls["cpu_s_per_gb"] - plaintext["cpu_s_per_gb"],
    }
