"""Every metric of an agent, named in one place. Names end in their unit; docs/CONFIGURATION.md lists them.

Rule: the hot path touches children that were bound before (`Metrics.request`, `Metrics.store`); labels are looked up
once. Gauges of the cluster's state are computed when they are scraped. The registry is the agent's own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from protocol.limits import METRIC_PARTITIONS_MAX

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES_BUCKETS = tuple(float(1 << exponent) for exponent in range(10, 28, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """What the state gauges show of the whole cluster's transactions at one moment."""

    ids: int
    open: int
    open_seconds_max: float
    """The age of the oldest that is open; 0 while none is."""
    begun: int
    """Since this agent began to apply the ledger, as are those that ended."""
    ended: Mapping[str, int]
    """By how they ended."""
    lags: Iterable[tuple[str, int]]
    """(topic, the most records of a partition that read_committed does not show yet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFigures:
    """What the state gauges show at one moment."""

    topics: int
    partitions: int
    chunks: int
    objects: int
    objects_released: int
    sessions: int
    ledger_position: int
    log_ends: Iterable[tuple[str, int, int]]
    """(topic, partition, log end)."""
    transactions: TransactionFigures
    producers: int = 0
    """Producers that partitions remember, each counted in every partition that it wrote to."""
    producers_dropped: int = 0
    """Since this agent began to apply the ledger."""


class RequestMetrics:
    """Of one API in one version."""

    __slots__ = ("_count", "_observe")

    def __init__(self, name: str, version: int, seconds: Histogram, requests: Counter) -> None:
        self._observe: Callable[[float], None] = seconds.labels(name).observe
        self._count: Callable[[], None] = requests.labels(name, str(version)).inc

    def answered(self, seconds: float) -> None:
        """Count one answer, whatever it says."""
        self._count()
        self._observe(seconds)


class StoreMetrics:
    """Of one operation of the object store; the signature that `storage.decorators.metered` calls."""

    __slots__ = ("_bytes", "_errors", "_requests", "_seconds")

    def __init__(self, operation: str, metrics: "Metrics") -> None:
        self._requests = metrics.store_requests.labels(operation)
        self._bytes = metrics.store_bytes.labels(operation)
        self._errors = metrics.store_errors.labels(operation)
        self._seconds = metrics.store_seconds.labels(operation)

    def observe(self, object_bytes: int, seconds: float, *, is_failed: bool) -> None:
        self._requests.inc()
        self._bytes.inc(object_bytes)
        self._seconds.observe(seconds)
        if is_failed:
            self._errors.inc()


class Metrics:
    """Created once per agent; its attributes are the metrics."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry(auto_describe=True)
        self._requests: dict[tuple[str, int], RequestMetrics] = {}
        self._store: dict[str, StoreMetrics] = {}
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside every counter, which nobody reads
        ProcessCollector(registry=self.registry)
        self._add_clients()
        self._add_produce_and_fetch()
        self._add_store()
        self._add_ledger()
        self._add_background()
        self._add_followers()
        self._add_groups()
        self._add_transactions()

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"penstock_{name}", text, labels, registry=self.registry)

    def _counted(self, name: str, text: str) -> "CountedElsewhere":
        counter = CountedElsewhere(f"penstock_{name}", text)
        self.registry.register(counter)
        return counter

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"penstock_{name}", text, labels, registry=self.registry)

    def _histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...] = (),
        buckets: tuple[float, ...] = SECONDS_BUCKETS,
    ) -> Histogram:
        return Histogram(f"penstock_{name}", text, labels, registry=self.registry, buckets=buckets)

    def _add_clients(self) -> None:
        self.requests = self._counter(
            "requests",
            "Kafka requests answered, by API and version.",
            ("api", "version"),
        )
        self.request_seconds = self._histogram("request_seconds", "From a request's last byte to its answer.", ("api",))
        self.connections = self._gauge("connections", "Open Kafka connections.", ("listener",))
        self.connections_accepted = self._counter("connections_accepted", "Kafka connections accepted.", ("listener",))
        self.connections_refused = self._counter(
            "connections_refused",
            "Connections closed by the agent, by reason.",
            ("reason",),
        )

        self.client_pushes = self._counter(
            "client_pushes", "Pushes of clients' metrics (KIP-714), by how they ended.", ("outcome",)
        )
        self.client_instances = self._gauge("client_instances", "Clients that ask which metrics to push.")
        self.client_series_dropped = self._counter(
            "client_series_dropped", "Values that clients pushed beyond what is shown of them, or of other kinds."
        )

    def _add_produce_and_fetch(self) -> None:
        self.produce_bytes = self._counter("produce_bytes", "Bytes of record batches acknowledged.")
        self.produce_records = self._counter("produce_records", "Records acknowledged.")
        self.produce_batches_rejected = self._counter("produce_batches_rejected", "Batches refused.", ("error",))
        self.fetch_bytes = self._counter("fetch_bytes", "Bytes of record batches served.")
        self.fetch_lost_objects = self._counter(
            "fetch_lost_objects",
            "Fetches of a partition that met an object that is gone from the bucket: the log names it.",
        )
        self.fetch_damaged_objects = self._counter(
            "fetch_damaged_objects",
            "Fetches of a partition that met a damaged object: the log names each object once.",
        )
        self.damaged_objects = self._gauge(
            "damaged_objects", "Objects of the ledger that this agent found damaged in the last ten minutes."
        )
        self.kernels_loaded = self._gauge("kernels_loaded", "1 once compiled kernels check, read and write records.")
        self.intake_objects = self._counter("intake_objects", "Intake objects written.")
        self.intake_object_bytes = self._histogram(
            "intake_object_bytes",
            "Size of intake objects.",
            buckets=BYTES_BUCKETS,
        )
        self.intake_flush_seconds = self._histogram("intake_flush_seconds", "From sealing an object to its commit.")
        self.intake_buffer_bytes = self._gauge("intake_buffer_bytes", "Accepted but not yet durable.")
        self.cache_hits = self._counted("cache_hits", "Reads served from memory.")
        self.cache_misses = self._counted("cache_misses", "Reads that went to the store.")
        self.cache_bytes = self._gauge("cache_bytes", "Memory that the read cache holds.")

    def _add_store(self) -> None:
        label = ("operation",)
        self.store_requests = self._counter("store_requests", "Requests to the object store.", label)
        self.store_bytes = self._counter("store_bytes", "Bytes to and from the object store.", label)
        self.store_errors = self._counter("store_errors", "Requests to the object store that failed.", label)
        self.store_seconds = self._histogram("store_seconds", "Latency of the object store.", label)
        self.disk_full = self._gauge(
            "disk_full", "1 while no records are taken because the data folder's disk is full."
        )
        self.store_damaged_parts = self._gauge(
            "store_damaged_parts",
            "Unreadable parts of the embedded store's packs, found since the start, not deleted: see penstock audit.",
        )
        self.store_outage_seconds = self._gauge(
            "store_outage_seconds",
            "For how long an operation of the object store has failed or waited; 0 while none does.",
        )

    def _add_ledger(self) -> None:
        self.ledger_appends = self._counter("ledger_appends", "Append transactions.")
        self.ledger_append_seconds = self._histogram("ledger_append_seconds", "Latency of an append.")
        self.ledger_errors = self._counter("ledger_errors", "Appends and reads that failed.")
        self.ledger_outage_seconds = self._gauge(
            "ledger_outage_seconds", "For how long the ledger has not answered; 0 while it does."
        )
        self.ledger_entries_applied = self._counted("ledger_entries_applied", "Entries applied to the state.")
        self.sessions_lost = self._counter("sessions_lost", "Sessions of this agent that ended without its doing.")
        self.snapshots = self._counter("snapshots", "Snapshots written.")
        self.digest_comparisons = self._counter(
            "digest_comparisons",
            "Comparisons of the state with other agents', by how they ended: alert on all but agreed and incomplete.",
            ("outcome",),
        )

    def _add_background(self) -> None:
        self.background_errors = self._counter(
            "background_errors",
            "Steps of background work on one topic that failed: by an outage, by damage or by a bug.",
            ("task", "kind"),
        )
        self.background_topics_failing = self._gauge(
            "background_topics_failing", "Topics on which background work fails, and is paused.", ("task",)
        )
        self.uncommitted_objects = self._counter(
            "uncommitted_objects",
            "Objects that were put for an entry that did not come: deleted, or left until the session ends.",
            ("outcome",),
        )
        self.archive_passes = self._counter("archive_passes", "Archive passes, by how they ended.", ("outcome",))
        self.archive_unreadable_chunks = self._gauge(
            "archive_unreadable_chunks",
            "Chunks that this agent cannot archive, as they are damaged or gone: their partitions wait.",
        )
        self.archive_bytes = self._counter("archive_bytes", "Bytes of records archived.")
        self.archive_records = self._counter("archive_records", "Records archived.")
        self.table_files_dropped = self._counter(
            "table_files_dropped", "Data files that left a table after their last records had left the log."
        )
        self.archive_seconds = self._histogram("archive_seconds", "Duration of an archive pass.")
        self.level_merges = self._counter("level_merges", "Merges of data files, by how they ended.", ("outcome",))
        self.level_bytes = self._counter("level_bytes", "Bytes of data files that were merged into larger ones.")
        self.level_seconds = self._histogram("level_seconds", "Duration of a merge of data files.")
        self.tail_age = self._gauge(
            "tail_age_seconds",
            "How old what the tail manifest says may be; 0 where another agent is the maintenance leader.",
        )
        self.tail_bytes = self._gauge("tail_bytes", "Size of the tail manifest that this agent wrote last.")
        self.tail_partitions_cut = self._gauge(
            "tail_partitions_cut",
            "Partitions that wait to be archived with more chunks than the tail manifest names; 0 where another agent "
            "is the maintenance leader.",
        )
        self.tail_topics = self._gauge("tail_topics", "Topics in the tail manifest that this agent wrote last.")
        self.tail_seconds = self._histogram("tail_seconds", "Duration of making a tail manifest.")
        self.clock_step_seconds = self._gauge(
            "clock_step_seconds",
            "How far the clock is beyond what is believed of it, negative behind the ledger; 0 while it is believed.",
        )
        self.clock_confirmation_seconds = self._gauge(
            "clock_confirmation_seconds",
            "Seconds until the clock is believed; 0 while it is, +Inf where it comes back or a person confirms it.",
        )
        self.bucket_mismatch = self._gauge(
            "bucket_mismatch", "1 while the bucket lacks this cluster's cluster.json, and nothing is acknowledged."
        )
        self.gc_deleted_objects = self._counter("gc_deleted_objects", "Objects deleted by the cleaner.")
        self.gc_undeletable_objects = self._gauge(
            "gc_undeletable_objects", "Garbage that the object store did not delete, tried again by the cleaner."
        )
        self.background_restarts = self._counted("background_restarts", "Background tasks that failed.")
        self.is_ready = self._gauge("ready", "1 while the agent serves.")

    def _add_followers(self) -> None:
        label = ("catalog",)
        self.catalog_follower_commits_behind = self._gauge(
            "catalog_follower_commits_behind", "Commits of tables that a catalog of others does not name yet.", label
        )
        self.catalog_follower_failures = self._counter(
            "catalog_follower_failures", "Calls of a catalog of others that failed.", label
        )
        self.catalog_follower_lag = self._gauge(
            "catalog_follower_lag_seconds",
            "For how long some table's newest commit has not been in a catalog of others.",
            label,
        )
        self.catalog_follower_moves = self._counter(
            "catalog_follower_moves",
            "Entries of a catalog of others that were made or moved.",
            label,
        )
        self.catalog_follower_tables_refused = self._gauge(
            "catalog_follower_tables_refused",
            "Tables that do not follow because somebody else has an entry of that name in the catalog.",
            label,
        )

    def _add_groups(self) -> None:
        self.groups = self._gauge("groups", "Groups with members that this agent coordinates.")
        self.group_generations = self._counted(
            "group_generations", "Rebalances of classic groups that began a generation here."
        )
        self.offsets_committed = self._counter("offsets_committed", "Offsets that groups committed through this agent.")

    def _add_transactions(self) -> None:
        self.transactions_stale_requests = self._counter(
            "transactions_stale_requests",
            "Requests of transactions on connections that their clients had left for newer ones: they did nothing.",
        )

    def request(self, api: str, version: int) -> RequestMetrics:
        """The bound metrics of one API in one version."""
        found = self._requests.get((api, version))
        if found is None:
            found = RequestMetrics(api, version, self.request_seconds, self.requests)
            self._requests[api, version] = found
        return found

    def store(self, operation: str) -> StoreMetrics:
        """The bound metrics of one operation: put, get, head, list, delete."""
        found = self._store.get(operation)
        if found is None:
            found = self._store[operation] = StoreMetrics(operation, self)
        return found

    def watch_state(self, figures: Callable[[], StateFigures]) -> None:
        """Report the cluster's state at each scrape."""
        self.registry.register(StateCollector(figures))

    def exposition(self) -> bytes:
        """The text of /metrics (Prometheus text format 0.0.4)."""
        return generate_latest(self.registry)


class CountedElsewhere(Collector):
    """A counter whose owner counts anyway; it is read when somebody asks."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._count: Callable[[], int] = lambda: 0

    def set_function(self, count: Callable[[], int]) -> None:
        """Report what `count` returns; it never goes down."""
        self._count = count

    def describe(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text)

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._count())


class StateCollector(Collector):
    """Gauges that are read from the state when somebody asks."""

    def __init__(self, figures: Callable[[], StateFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        figures = self._figures()
        for name, text, value in (
            ("topics", "Topics.", figures.topics),
            ("partitions", "Partitions.", figures.partitions),
            ("chunks", "Chunks in the index.", figures.chunks),
            ("objects", "Objects that the state refers to.", figures.objects),
            ("objects_released", "Objects that await deletion.", figures.objects_released),
            ("sessions", "Live sessions of agents.", figures.sessions),
            ("ledger_position", "Newest ledger entry applied here.", figures.ledger_position),
            ("producer_states", "Producers that partitions remember, counted in each of them.", figures.producers),
        ):
            yield GaugeMetricFamily(f"penstock_{name}", text, value=value)
        if figures.partitions <= METRIC_PARTITIONS_MAX:
            log_end = GaugeMetricFamily("penstock_log_end_offset", "Next offset.", labels=("topic", "partition"))
            for topic, partition, offset in figures.log_ends:
                log_end.add_metric((topic, str(partition)), offset)
            yield log_end
            lag = GaugeMetricFamily("penstock_last_stable_lag_records", LAG_TEXT, labels=("topic",))
            for topic, records in figures.transactions.lags:
                lag.add_metric((topic,), records)
            yield lag
        text = "Producer states dropped because there were too many: every agent counts all."
        yield CounterMetricFamily("penstock_producer_states_dropped", text, value=figures.producers_dropped)
        yield from _transaction_metrics(figures.transactions)


LAG_TEXT = "Records that read_committed does not show yet, because a transaction is open: a topic's worst partition."


def _transaction_metrics(figures: TransactionFigures) -> Iterable[Metric]:
    for name, text, value in (
        ("transactional_ids", "Transactional ids that are remembered.", figures.ids),
        ("transactions_open", "Transactions that are open.", figures.open),
        (
            "transaction_open_seconds",
            "The age of the oldest open transaction; 0 while none is.",
            figures.open_seconds_max,
        ),
    ):
        yield GaugeMetricFamily(f"penstock_{name}", text, value=value)
    text = "Transactions of the whole cluster that began: every agent counts all."
    yield CounterMetricFamily("penstock_transactions_begun", text, value=figures.begun)
    text = "Transactions of the whole cluster that ended, by how: every agent counts all."
    ended = CounterMetricFamily("penstock_transactions_ended", text, labels=("how",))
    for how, count in figures.ended.items():
        ended.add_metric((how,), count)
    yield ended
