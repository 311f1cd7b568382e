"""What is measured: the rows of the table.

Rule: data alone. `benchmarks.measure.rows` knows how a kind is measured, `benchmarks.report.goals` what it should
reach.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

KIB = 1024
MIB = 1024 * KIB


class PeerName(Enum):
    KAFKA = "kafka"
    EMBEDDED = "embedded"
    """`penstock run`, with fsync."""
    MINIO = "minio"
    """`penstock agent` with its ledger in SQLite and its objects in MinIO."""
    CLUSTER = "cluster"
    """`penstock agent`, one or several, over etcd and MinIO; only while a row wants them."""


ALL_PEERS = (PeerName.KAFKA, PeerName.EMBEDDED, PeerName.MINIO)
FAST_PEERS = (PeerName.KAFKA, PeerName.EMBEDDED)


class Kind(Enum):
    PRODUCE = "produce"
    """As fast as it goes."""
    PRODUCE_BULK = "produce-bulk"
    """As fast as it goes with large requests, so that waiting for a flush does not bound the client."""
    PRODUCE_PACED = "produce-paced"
    """The same rate on every peer, far below what they can: what a byte costs."""
    PRODUCE_SUSTAINED = "produce-sustained"
    """As fast as it goes for minutes, with default settings: what a broker does in the background is at work."""
    LATENCY = "latency"
    """1,000 records a second, each sent at once: until it is acknowledged."""
    END_TO_END = "end-to-end"
    """One record at a time: until the consumer has it."""
    CONSUME_MEMORY = "consume-memory"
    CONSUME_ARCHIVE = "consume-archive"
    """Penstock from Parquet with cold caches; Kafka, which has no such thing, from memory."""
    RAW_PUT = "raw-put"
    """What MinIO takes without a broker before it."""
    METADATA = "metadata"
    """Chunk references applied, and a state of many of them: what a process of its own takes, without a broker."""
    OBJECT_REQUESTS = "object-requests"
    """With the default flush interval and produced at 100 MB/s: PUTs, and GETs of three readers after a restart."""
    IDLE = "idle"
    """Start-up, and what an idle broker takes."""
    CLUSTER_PRODUCE = "cluster-produce"
    """As fast as it goes through the agents of a cluster, beside plain PUTs."""
    CLUSTER_COST = "cluster-cost"
    """A fixed rate at several flush intervals, read once: requests to the store and their price."""
    CLUSTER_LATENCY = "cluster-latency"
    """1,000 records a second, beside the flush's wait, one PUT and one append."""
    CLUSTER_RELAY = "cluster-relay"
    """Heartbeats and commits of a member to its coordinator, and through another agent behind one address."""
    GROUPS = "groups"
    """Classic groups of ten members each: formed, idle, and committing once a second."""
    TRANSACTIONS = "transactions"
    """As fast as it goes in transactions of a length, beside the same producer without them."""
    COMMIT = "commit"
    """One record in each of the partitions: until the commit is answered, and until everybody can read it."""
    TLS_PRODUCE = "tls-produce"
    """As fast as it goes over TLS, beside the same over plaintext."""
    TLS_CONSUME = "tls-consume"
    """The same from memory."""
    TLS_HANDSHAKES = "tls-handshakes"
    """Mutual TLS, 600 at once: what one costs, what others notice, and the memory of idle connections."""
    TLS_START = "tls-start"
    """Start-up with `--secure`."""
    RIGHTS_PRODUCE = "rights-produce"
    """As fast as it goes with the authorizer and 10,000 ACLs, beside the same without."""
    RIGHTS_CONSUME = "rights-consume"
    """The same from memory, in small answers."""
    OPENMESSAGING = "openmessaging"
    """A workload of the OpenMessaging Benchmark: a producer at a steady rate, and a consumer that follows it."""
    COLD_START = "cold-start"
    """Start-up where nothing of the program is in the system's page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. `rate`: records per second, -1 for no limit."""

    kind: Kind
    value_bytes: int = 0
    partitions: int = 1
    compression: str = "none"
    batch_bytes: int = 16 * KIB
    request_bytes: int = MIB
    linger_ms: int = 5
    rate: int = -1
    agents: int = 0
    """Of a cluster; 0 where there is none."""
    clients: int = 1
    """Of a cluster's rows: producers at the same time."""
    flush_interval_ms: int = 0
    """Of a cluster's agents; 0: at once while nothing is on its way."""
    workload: str = ""
    """Of the OpenMessaging Benchmark: the name of its file there, without `.yaml`."""
    transaction_ms: int = 0
    """How long a transaction lasts; 0: there are none."""
    peers: tuple[PeerName, ...] = ALL_PEERS
    is_in_quick: bool = True

    @property
    def plain_name(self) -> str:
        """The name without the blanks that align it."""
        return " ".join(self.name.split())

    @property
    def name(self) -> str:
        batch = f"{self.batch_bytes // MIB} MiB" if self.batch_bytes >= MIB else f"{self.batch_bytes // KIB} KiB"
        shape = f"{self.value_bytes:>4} B p{self.partitions:<2}"
        match self.kind:
            case Kind.PRODUCE | Kind.PRODUCE_BULK | Kind.PRODUCE_SUSTAINED:
                return f"{self.kind.value} {shape} {self.compression:<4} {batch}"
            case Kind.PRODUCE_PACED:
                return f"produce-paced {self.rate * self.value_bytes / 1e6:g} MB/s {shape} {batch}"
            case Kind.TLS_HANDSHAKES:
                return f"tls-handshakes {self.rate}/s {shape}"
            case Kind.LATENCY:
                return f"latency {self.rate}/s {shape}"
            case Kind.END_TO_END:
                return f"end-to-end {self.value_bytes:>4} B"
            case Kind.CONSUME_MEMORY | Kind.CONSUME_ARCHIVE:
                return f"{self.kind.value} {shape} {self.compression}"
            case Kind.TLS_PRODUCE | Kind.TLS_CONSUME | Kind.RIGHTS_PRODUCE | Kind.RIGHTS_CONSUME:
                return f"{self.kind.value} {shape} {batch}"
            case Kind.CLUSTER_PRODUCE | Kind.CLUSTER_COST | Kind.CLUSTER_LATENCY:
                rate = "" if self.rate < 0 else f" {self.rate * self.value_bytes / 1e6:g} MB/s"
                flush = f"{self.flush_interval_ms} ms" if self.flush_interval_ms else "express"
                clients = f" clients {self.clients} {batch}" if self.clients > 1 else ""
                return f"{self.kind.value} agents {self.agents}{clients}{rate} flush {flush}"
            case Kind.CLUSTER_RELAY:
                return f"cluster-relay agents {self.agents}"
            case Kind.TRANSACTIONS:
                return f"transactions {self.transaction_ms:>4} ms {shape}"
            case Kind.COMMIT:
                return f"commit p{self.partitions}"
            case _:
                return f"{self.kind.value} {self.workload}".rstrip()


def cases() -> Iterator[Case]:
    """All rows, in the order in which they are measured."""
    yield from _produce()
    for compression in ("none", "zstd"):
        yield Case(
            kind=Kind.PRODUCE_BULK,
            value_bytes=1000,
            partitions=16,
            compression=compression,
            batch_bytes=MIB,
            request_bytes=8 * MIB,
        )
    for value_bytes, rate in ((1000, 5_000), (100, 25_000)):
        yield Case(kind=Kind.PRODUCE_PACED, value_bytes=value_bytes, rate=rate, peers=FAST_PEERS)
    for batch_bytes in (16 * KIB, MIB):
        yield Case(
            kind=Kind.PRODUCE_SUSTAINED, value_bytes=1000, partitions=16, batch_bytes=batch_bytes, peers=FAST_PEERS
        )
    for partitions in (1, 16):
        yield Case(kind=Kind.LATENCY, value_bytes=1000, partitions=partitions, rate=1000, linger_ms=0)
    for value_bytes in (100, 1000):
        yield Case(kind=Kind.END_TO_END, value_bytes=value_bytes)
    yield from _consume()
    yield Case(kind=Kind.RAW_PUT, peers=(PeerName.MINIO,))
    yield Case(kind=Kind.METADATA, peers=(PeerName.EMBEDDED,))
    yield Case(
        kind=Kind.OBJECT_REQUESTS,
        value_bytes=1000,
        partitions=16,
        batch_bytes=MIB,
        request_bytes=8 * MIB,
        rate=100_000,
        peers=(PeerName.MINIO,),
    )
    yield from _cluster()
    yield from _transactions()
    yield from _openmessaging()
    yield Case(kind=Kind.IDLE)
    yield Case(kind=Kind.GROUPS, peers=FAST_PEERS)
    yield from _tls()
    yield from _rights()
    yield Case(kind=Kind.COLD_START, peers=(PeerName.EMBEDDED,))


def _produce() -> Iterator[Case]:
    for value_bytes in (1000, 100):
        for partitions in (1, 16):
            for compression in ("none", "lz4", "zstd"):
                for batch_bytes in (16 * KIB, MIB):
                    yield Case(
                        kind=Kind.PRODUCE,
                        value_bytes=value_bytes,
                        partitions=partitions,
                        compression=compression,
                        batch_bytes=batch_bytes,
                        # A codec more tells nothing new of the store.
                        peers=FAST_PEERS if compression == "lz4" else ALL_PEERS,
                        is_in_quick=compression != "lz4",
                    )


def _cluster() -> Iterator[Case]:
    """One client, whose partitions are spread over the agents; and eight, which no wait for an answer holds back."""
    bulk = Case(
        kind=Kind.CLUSTER_PRODUCE,
        value_bytes=1000,
        partitions=16,
        batch_bytes=MIB,
        request_bytes=8 * MIB,
        peers=(PeerName.CLUSTER,),
    )
    for agents in (1, 3):
        yield replace(bulk, agents=agents, flush_interval_ms=250)
    for batch_bytes in (16 * KIB, MIB):
        for agents in (1, 3):
            together = replace(bulk, agents=agents, clients=8, batch_bytes=batch_bytes, flush_interval_ms=250)
            yield replace(together, is_in_quick=agents == 1 and batch_bytes == MIB)
    for agents in (1, 3):
        for flush_interval_ms in (50, 250, 1000):
            yield replace(bulk, kind=Kind.CLUSTER_COST, agents=agents, flush_interval_ms=flush_interval_ms, rate=20_000)
    slow = replace(bulk, kind=Kind.CLUSTER_LATENCY, batch_bytes=16 * KIB, request_bytes=MIB, linger_ms=0, rate=1000)
    for agents in (1, 3):
        for flush_interval_ms in (0, 250):
            yield replace(slow, agents=agents, flush_interval_ms=flush_interval_ms)
    yield Case(kind=Kind.CLUSTER_RELAY, agents=3, peers=(PeerName.CLUSTER,))


def _transactions() -> Iterator[Case]:
    for transaction_ms in (10, 100, 1000):
        yield Case(kind=Kind.TRANSACTIONS, value_bytes=1000, partitions=16, transaction_ms=transaction_ms)
    for partitions in (1, 10, 100, 1000):
        yield Case(kind=Kind.COMMIT, partitions=partitions)


def _openmessaging() -> Iterator[Case]:
    """Those with one producer and one consumer whose rate a machine with two cores can hold, client and all."""
    for workload, value_bytes, partitions, rate in (
        ("simple-workload", 1024, 10, 10_000),
        ("1-topic-1-partition-100b", 100, 1, 50_000),
        ("1-topic-1-partition-1kb", 1024, 1, 50_000),
        ("1-topic-16-partitions-1kb", 1024, 16, 50_000),
        ("1-topic-100-partitions-1kb", 1024, 100, 50_000),
    ):
        yield Case(
            kind=Kind.OPENMESSAGING,
            workload=workload,
            value_bytes=value_bytes,
            partitions=partitions,
            batch_bytes=128 * KIB,
            linger_ms=1,
            rate=rate,
            peers=FAST_PEERS,
            is_in_quick=rate < 50_000,
        )


def _tls() -> Iterator[Case]:
    """The last rows of brokers that are warm: they restart with listeners that encrypt, and without them behind."""
    small = Case(kind=Kind.TLS_PRODUCE, value_bytes=1000, partitions=16, peers=FAST_PEERS)
    yield small
    yield replace(small, batch_bytes=MIB, request_bytes=8 * MIB)
    for batch_bytes in (16 * KIB, MIB):
        yield replace(small, kind=Kind.TLS_CONSUME, batch_bytes=batch_bytes, request_bytes=8 * MIB, linger_ms=20)
    yield replace(small, kind=Kind.TLS_HANDSHAKES, partitions=1, rate=1000, linger_ms=0)
    yield Case(kind=Kind.TLS_START, peers=(PeerName.EMBEDDED,))


def _rights() -> Iterator[Case]:
    """Brokers of their own. Batches are small, so that there are many requests to be judged."""
    produced = Case(kind=Kind.RIGHTS_PRODUCE, value_bytes=1000, partitions=16, peers=FAST_PEERS)
    yield produced
    yield replace(produced, kind=Kind.RIGHTS_CONSUME, linger_ms=20)


def _consume() -> Iterator[Case]:
    for kind in (Kind.CONSUME_MEMORY, Kind.CONSUME_ARCHIVE):
        for value_bytes, compression, partitions, peers in (
            (1000, "none", 1, FAST_PEERS),
            (1000, "none", 16, ALL_PEERS),
            (1000, "zstd", 16, FAST_PEERS),
            (100, "none", 16, FAST_PEERS),
            (100, "zstd", 16, ALL_PEERS),
        ):
            yield Case(
                kind=kind,
                value_bytes=value_bytes,
                partitions=partitions,
                compression=compression,
                batch_bytes=256 * KIB,
                linger_ms=20,
                peers=peers,
                is_in_quick=partitions == 16,
            )
