"""How much work a measurement is, how long rows should take, and how much time a run has left.

Rule: pure. An estimate is made of what was seen on two shared cores; once rows are done, their own pace corrects it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.cases import MIB, Case, Kind, PeerName

CLIENT_SECONDS = 2.5
"""A Java client's start, a topic's making and deletion, and the wait until the broker is quiet."""
CONSUMED_MB_PER_S, LOADED_MB_PER_S = 250.0, 100.0
"""By and large, of the slower peer."""
RESTART_SECONDS = 6.0
PEER_SECONDS, TOOLS_SECONDS = 18.0, 8.0
PACED_SECONDS = 8
OBJECT_REQUEST_SECONDS = 12.0
METADATA_SECONDS = 15.0
COLD_START_SECONDS = 8.0
IDLE_SETTLING_SECONDS = 5.0
GROUPS_FORMED_PER_S, GROUPS_SETTLING_SECONDS = 50.0, 10.0
"""With what it takes them to leave and to be deleted; the wait for more members before a first generation."""
END_TO_END_MS = {PeerName.KAFKA: 1.0, PeerName.EMBEDDED: 2.0, PeerName.MINIO: 6.0}
PRODUCED_MB_PER_S: dict[tuple[int, bool, bool], float] = {
    (1000, False, False): 20,
    (1000, False, True): 80,
    (1000, True, False): 170,
    (1000, True, True): 150,
    (100, False, False): 20,
    (100, False, True): 40,
    (100, True, False): 60,
    (100, True, True): 60,
}
"""By bytes of a value, whether batches are large, and whether there are many partitions: between the peers' speeds."""
SUSTAINED_MB_PER_S = 40
CLUSTER_COST_SECONDS = 6
CLUSTER_START_SECONDS = 4.0
"""With the seconds of its agents' end."""
RAW_LATENCY_SECONDS = 1.0
COMMIT_SECONDS, COMMIT_PARTITION_SECONDS = 0.01, 0.0001
RELAY_JOIN_SECONDS, RELAY_ROUND_SECONDS = 4.0, 0.012
"""Until the group is formed; a heartbeat and a commit both ways."""
STORMS_SECONDS = 12.0
"""Storms of handshakes without a producer, and connections that are idle."""
RIGHTS_TURNS = 4
"""How often brokers with and without the authorizer come to work in a round."""
RIGHTS_PASSES = 3
"""Over a topic, in one turn."""
ACLS_SECONDS = 5.0
"""Until 10,000 ACLs are there."""
SMALL_ANSWERS_MB_PER_S = 150.0
RIGHTS_BROKERS_SECONDS = 4 * RESTART_SECONDS + 2 * PEER_SECONDS + ACLS_SECONDS
"""Two brokers, of which one starts twice, and the peer's own start behind them."""
SINGLE_ROUND = (
    *(Kind.IDLE, Kind.METADATA, Kind.PRODUCE_SUSTAINED, Kind.CLUSTER_COST, Kind.GROUPS, Kind.COMMIT),
    *(Kind.TLS_HANDSHAKES, Kind.TLS_START, Kind.OPENMESSAGING),
)
"""They repeat by themselves, or last long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much work a measurement is."""

    produce_seconds: float
    """How long an unlimited producer should be at work, at the speed that its row usually has."""
    sustained_seconds: float
    """The same of a row with background work."""
    megabytes: int
    """What is loaded to be consumed, and put into MinIO."""
    latency_records: int
    end_to_end_records: int
    idle_seconds: float
    chunks: int
    """References in the state that is loaded."""
    groups: int
    """Of ten members each, which are idle for `idle_seconds`, and commit for as long."""
    commits: int
    """Transactions of a row whose commits are measured."""
    workload_seconds: int
    """Of a workload of the OpenMessaging Benchmark, behind a warm-up of a third."""

    @property
    def workload_warm_up_seconds(self) -> int:
        return max(1, self.workload_seconds // 3)

    @property
    def relay_rounds(self) -> int:
        """Heartbeats and commits of each way: half as many as records, for there are two of both in a round."""
        return self.latency_records // 2

    def records(self, case: Case, peer: PeerName) -> int:
        """How many records one measurement of a row sends to a peer, or loads into it."""
        match case.kind:
            case Kind.PRODUCE | Kind.PRODUCE_BULK | Kind.TRANSACTIONS | Kind.TLS_PRODUCE | Kind.RIGHTS_PRODUCE:
                is_small = case.batch_bytes < MIB
                speed = PRODUCED_MB_PER_S[case.value_bytes, not is_small, case.partitions > 1]
                # Where each flush is a PUT over HTTP, five small requests in flight leave a client little.
                share = 0.5 if is_small and peer is PeerName.MINIO else 1.0
                return int(self.produce_seconds * share * speed * 1e6 / case.value_bytes)
            case Kind.PRODUCE_SUSTAINED:
                return int(self.sustained_seconds * SUSTAINED_MB_PER_S * 1e6 / case.value_bytes)
            case Kind.PRODUCE_PACED:
                return PACED_SECONDS * case.rate
            case Kind.CLUSTER_COST:
                return CLUSTER_COST_SECONDS * case.rate
            case Kind.LATENCY | Kind.CLUSTER_LATENCY | Kind.CLUSTER_RELAY | Kind.TLS_HANDSHAKES:
                return self.latency_records
            case Kind.END_TO_END:
                return self.end_to_end_records
            case _:
                # Of small records half as many bytes, for they take longer.
                return self.megabytes * (1_000_000 if case.value_bytes >= 1000 else 500_000) // max(case.value_bytes, 1)


def rounds_of(case: Case, round_count: int) -> int:
    return 1 if case.kind in SINGLE_ROUND else round_count


def row_seconds(case: Case, scale: Scale, peers: Sequence[PeerName], round_count: int) -> float:
    """How long a row should take on those of its peers that run."""
    rounds = rounds_of(case, round_count)
    return sum(
        _preparation_seconds(case, scale, peer) + rounds * _measurement_seconds(case, scale, peer)
        for peer in case.peers
        if peer in peers
    )


def run_seconds(cases: Sequence[Case], scale: Scale, peers: Sequence[PeerName], round_count: int) -> float:
    """How long a run should take, with the start and the warming of the peers."""
    rows = sum(row_seconds(case, scale, peers, round_count) for case in cases)
    return TOOLS_SECONDS + PEER_SECONDS * len(peers) + rows


def _preparation_seconds(case: Case, scale: Scale, peer: PeerName) -> float:
    match case.kind:
        case Kind.CONSUME_MEMORY | Kind.CONSUME_ARCHIVE:
            # A quarter more warms the client.
            megabytes = 1.25 * scale.records(case, peer) * case.value_bytes / 1e6
            passes = 2 if case.kind is Kind.CONSUME_ARCHIVE and peer is not PeerName.KAFKA else 1
            return 2 * CLIENT_SECONDS + passes * megabytes / LOADED_MB_PER_S
        case Kind.CLUSTER_PRODUCE | Kind.CLUSTER_COST | Kind.CLUSTER_LATENCY | Kind.CLUSTER_RELAY:
            return CLUSTER_START_SECONDS * case.agents + 2 * CLIENT_SECONDS
        case Kind.TLS_PRODUCE | Kind.TLS_HANDSHAKES:
            return 2 * RESTART_SECONDS + PEER_SECONDS
        case Kind.TLS_CONSUME:
            megabytes = 1.25 * scale.records(case, peer) * case.value_bytes / 1e6
            return 2 * RESTART_SECONDS + PEER_SECONDS + 2 * CLIENT_SECONDS + megabytes / LOADED_MB_PER_S
        case Kind.RIGHTS_PRODUCE:
            return RIGHTS_BROKERS_SECONDS
        case Kind.RIGHTS_CONSUME:
            megabytes = 1.25 * scale.records(case, peer) * case.value_bytes / 1e6
            return RIGHTS_BROKERS_SECONDS + 2 * (2 * CLIENT_SECONDS + megabytes / LOADED_MB_PER_S)
        case _:
            return 0.0


def _measurement_seconds(case: Case, scale: Scale, peer: PeerName) -> float:  # noqa: C901 - one arm per kind
    match case.kind:
        case Kind.PRODUCE | Kind.PRODUCE_BULK:
            return CLIENT_SECONDS + 1.2 * scale.produce_seconds
        case Kind.PRODUCE_SUSTAINED:
            return RESTART_SECONDS + CLIENT_SECONDS + 1.2 * scale.sustained_seconds
        case Kind.TRANSACTIONS | Kind.TLS_PRODUCE:
            return 2 * (CLIENT_SECONDS + 1.2 * scale.produce_seconds)
        case Kind.COMMIT:
            return CLIENT_SECONDS + scale.commits * (COMMIT_SECONDS + case.partitions * COMMIT_PARTITION_SECONDS)
        case Kind.OPENMESSAGING:
            return GROUPS_SETTLING_SECONDS + CLIENT_SECONDS + scale.workload_warm_up_seconds + scale.workload_seconds
        case Kind.TLS_HANDSHAKES:
            return STORMS_SECONDS + 2 * (CLIENT_SECONDS + scale.records(case, peer) / case.rate)
        case Kind.TLS_START:
            return 3 * RESTART_SECONDS
        case Kind.PRODUCE_PACED | Kind.LATENCY:
            return CLIENT_SECONDS + scale.records(case, peer) / case.rate
        case Kind.END_TO_END:
            return CLIENT_SECONDS + scale.end_to_end_records * END_TO_END_MS[peer] / 1000
        case Kind.CONSUME_MEMORY | Kind.CONSUME_ARCHIVE:
            megabytes = 1.25 * scale.records(case, peer) * case.value_bytes / 1e6
            is_restarted = case.kind is Kind.CONSUME_ARCHIVE and peer is not PeerName.KAFKA
            return CLIENT_SECONDS + megabytes / CONSUMED_MB_PER_S + (RESTART_SECONDS if is_restarted else 0.0)
        case Kind.TLS_CONSUME:
            megabytes = 1.25 * scale.records(case, peer) * case.value_bytes / 1e6
            return 2 * (CLIENT_SECONDS + megabytes / CONSUMED_MB_PER_S)
        case Kind.RIGHTS_PRODUCE:
            return RIGHTS_TURNS * (CLIENT_SECONDS + 1.2 * scale.produce_seconds)
        case Kind.RIGHTS_CONSUME:
            megabytes = (0.25 + RIGHTS_PASSES) * scale.records(case, peer) * case.value_bytes / 1e6
            return RIGHTS_TURNS * (CLIENT_SECONDS + megabytes / SMALL_ANSWERS_MB_PER_S)
        case Kind.RAW_PUT:
            return 0.5 + scale.megabytes / CONSUMED_MB_PER_S
        case Kind.CLUSTER_PRODUCE | Kind.CLUSTER_COST | Kind.CLUSTER_LATENCY | Kind.CLUSTER_RELAY:
            return _cluster_seconds(case, scale)
        case Kind.METADATA:
            return METADATA_SECONDS
        case Kind.OBJECT_REQUESTS:
            return OBJECT_REQUEST_SECONDS
        case Kind.IDLE:
            return RESTART_SECONDS + IDLE_SETTLING_SECONDS + scale.idle_seconds
        case Kind.GROUPS:
            return GROUPS_SETTLING_SECONDS + scale.groups / GROUPS_FORMED_PER_S + 2 * scale.idle_seconds
        case Kind.COLD_START:
            return COLD_START_SECONDS


def _cluster_seconds(case: Case, scale: Scale) -> float:
    match case.kind:
        case Kind.CLUSTER_COST:
            return 2 * CLIENT_SECONDS + CLUSTER_COST_SECONDS
        case Kind.CLUSTER_RELAY:
            return RELAY_JOIN_SECONDS + scale.relay_rounds * RELAY_ROUND_SECONDS
        case Kind.CLUSTER_LATENCY:
            return CLIENT_SECONDS + scale.latency_records / case.rate + RAW_LATENCY_SECONDS
        case _:
            return CLIENT_SECONDS + 1.5 * scale.megabytes / LOADED_MB_PER_S


@dataclass(slots=True, kw_only=True)
class Progress:
    """Time left of a run: what is expected of the rows to come, at the pace of the rows that are done."""

    expected: list[float]
    """Seconds of each row, in their order."""
    taken: list[float] = field(default_factory=list)
    """Seconds of the rows that are done."""

    def done(self, seconds: float) -> None:
        """The next row is done and took `seconds`."""
        self.taken.append(seconds)

    @property
    def seconds_left(self) -> float:
        count = len(self.taken)
        before = sum(self.expected[:count])
        pace = sum(self.taken) / before if before else 1.0
        return sum(self.expected[count:]) * pace
