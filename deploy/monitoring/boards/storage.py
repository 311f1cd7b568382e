"""Storage: what is asked of the bucket, how it answers, and what waits for deletion."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

STORAGE: Final = Board(
    name="Storage",
    rows={
        "Bucket": (
            Panel(
                title="Requests",
                queries=[
                    query("sum by (operation) (rate(penstock_store_requests_total[$__rate_interval]))", "{{operation}}")
                ],
                unit=Unit.PER_SECOND,
                normal="Puts follow the flush interval and the number of agents, not the number of partitions.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Latency, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (operation, le) "
                        "(rate(penstock_store_duration_seconds_bucket[$__rate_interval])))",
                        "{{operation}}",
                    )
                ],
                unit=Unit.SECONDS,
                normal="Below half a second on S3.",
                page="alerts.md#produceslow",
            ),
            Panel(
                title="Errors",
                queries=[
                    query(
                        "sum by (operation, reason) (rate(penstock_store_errors_total[$__rate_interval]))",
                        "{{operation}} {{reason}}",
                    )
                ],
                unit=Unit.PER_SECOND,
                normal="0, but for requests that an agent cancelled.",
                page="alerts.md#storeerrors",
            ),
        ),
        "Traffic": (
            Panel(
                title="Bytes",
                queries=[
                    query("sum by (operation) (rate(penstock_store_bytes_total[$__rate_interval]))", "{{operation}}")
                ],
                unit=Unit.BYTES_PER_SECOND,
                normal="Puts: what is produced, and the archive. Gets: what the read cache does not have.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Repeated and hedged requests",
                queries=[
                    query("sum(rate(penstock_store_retries_total[$__rate_interval]))", "repeated"),
                    query("sum(rate(penstock_store_hedges_total[$__rate_interval]))", "hedged"),
                ],
                unit=Unit.PER_SECOND,
                normal="A small part of all requests.",
                page="alerts.md#storeerrors",
            ),
            Panel(
                title="Reads that the cache served",
                queries=[
                    query(
                        "sum(rate(penstock_cache_hits_total[$__rate_interval])) "
                        "/ (sum(rate(penstock_cache_hits_total[$__rate_interval])) "
                        "+ sum(rate(penstock_cache_misses_total[$__rate_interval])))",
                        "hits",
                    )
                ],
                unit=Unit.RATIO,
                normal="Near 100 % while consumers are close to the end of the log.",
                page="monitoring.md#metrics-by-question",
            ),
        ),
        "Intake": (
            Panel(
                title="Intake objects",
                queries=[query("sum(rate(penstock_intake_objects_total[$__rate_interval]))", "objects")],
                unit=Unit.PER_SECOND,
                normal="At most one for each agent and flush interval, more under full load.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Size of intake objects",
                queries=[
                    query(
                        "histogram_quantile(0.5, sum by (le) "
                        "(rate(penstock_intake_object_bytes_bucket[$__rate_interval])))",
                        "median",
                    ),
                    query("sum(penstock_intake_buffer_bytes)", "not yet durable"),
                ],
                unit=Unit.BYTES,
                normal="Larger objects cost less. What is not yet durable is bounded for each agent.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="From sealing to commit, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(penstock_intake_flush_duration_seconds_bucket[$__rate_interval])))",
                        "p99",
                    )
                ],
                unit=Unit.SECONDS,
                normal="A put and an append.",
                page="alerts.md#produceslow",
            ),
        ),
        "Objects": (
            Panel(
                title="Objects",
                queries=[
                    query("max(penstock_objects)", "referenced"),
                    query("max(penstock_objects_pending_deletion)", "wait for deletion"),
                ],
                unit=Unit.COUNT,
                normal="Objects wait for gc-min-age-s, ten minutes by default.",
                page="alerts.md#garbagegrows",
            ),
            Panel(
                title="Deleted objects",
                queries=[
                    query("sum(rate(penstock_gc_deleted_objects_total[$__rate_interval]))", "deleted"),
                    query("sum(rate(penstock_uncommitted_objects_total[$__rate_interval]))", "never committed"),
                ],
                unit=Unit.PER_SECOND,
                normal="As many as archive and retention release.",
                page="alerts.md#garbagegrows",
            ),
            Panel(
                title="Damage",
                queries=[
                    query("sum(penstock_damaged_objects)", "damaged objects"),
                    query("sum(penstock_store_damaged_parts)", "damaged parts of packs"),
                    query("sum(penstock_gc_undeletable_objects)", "cannot be deleted"),
                    query("sum(increase(penstock_fetch_missing_objects_total[$__rate_interval]))", "fetches: missing"),
                    query("sum(increase(penstock_fetch_damaged_objects_total[$__rate_interval]))", "fetches: damaged"),
                ],
                unit=Unit.COUNT,
                normal="0, all of them.",
                page="damage.md",
            ),
        ),
    },
)
