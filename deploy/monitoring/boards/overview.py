"""Overview: whether clients are served, how fast, and what hinders it."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

OVERVIEW: Final = Board(
    name="Overview",
    rows={
        "Service": (
            Panel(
                title="Agents that serve",
                queries=[query("sum(penstock_ready)", "ready"), query("max(penstock_sessions)", "sessions")],
                unit=Unit.COUNT,
                normal="As many agents are ready as were started, and each has a session.",
                page="alerts.md#agentsmissing",
                is_stat=True,
            ),
            Panel(
                title="Agents that serve, by zone",
                queries=[
                    query(
                        "sum by (zone) (penstock_ready * on (job, instance) group_left (zone) penstock_build_info)",
                        "{{zone}}",
                    )
                ],
                unit=Unit.COUNT,
                normal="About as many in each zone. Without zones there is one line for all.",
                page="alerts.md#agentsmissing",
            ),
            Panel(
                title="Outages",
                queries=[
                    query("max(penstock_ledger_outage_seconds)", "ledger"),
                    query("max(penstock_store_outage_seconds)", "bucket"),
                ],
                unit=Unit.SECONDS,
                normal="0. While one of them lasts, no record is acknowledged.",
                page="cluster.md#outages-of-etcd-or-the-bucket",
                is_stat=True,
                red_from=30,
            ),
            Panel(
                title="Starts that wait",
                queries=[query("max by (for) (penstock_start_waits_seconds)", "{{for}}")],
                unit=Unit.SECONDS,
                normal="0. Agents that wait for the ledger, the bucket or their own name are live, and not ready.",
                page="alerts.md#notready",
            ),
            Panel(
                title="Connections",
                queries=[query("sum by (listener) (penstock_connections)", "{{listener}}")],
                unit=Unit.COUNT,
                normal="Open Kafka connections of all agents.",
                page="monitoring.md#metrics-by-question",
            ),
        ),
        "Flow": (
            Panel(
                title="Bytes in and out",
                queries=[
                    query("sum(rate(penstock_produce_bytes_total[$__rate_interval]))", "produced"),
                    query("sum(rate(penstock_fetch_bytes_total[$__rate_interval]))", "fetched"),
                ],
                unit=Unit.BYTES_PER_SECOND,
                normal="Record batches as clients send and get them.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Records and batches in",
                queries=[
                    query("sum(rate(penstock_produce_records_total[$__rate_interval]))", "records"),
                    query("sum(rate(penstock_produce_batches_total[$__rate_interval]))", "batches"),
                ],
                unit=Unit.PER_SECOND,
                normal="Acknowledged records. Few records in a batch cost processor time.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Requests",
                queries=[query("sum by (api) (rate(penstock_requests_total[$__rate_interval]))", "{{api}}")],
                unit=Unit.PER_SECOND,
                normal="Answered Kafka requests, errors included.",
                page="monitoring.md#metrics-by-question",
            ),
        ),
        "Latency": (
            Panel(
                title="Produce",
                queries=[
                    query(
                        "histogram_quantile(0.5, sum by (le) "
                        '(rate(penstock_request_duration_seconds_bucket{api="Produce"}[$__rate_interval])))',
                        "p50",
                    ),
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        '(rate(penstock_request_duration_seconds_bucket{api="Produce"}[$__rate_interval])))',
                        "p99",
                    ),
                ],
                unit=Unit.SECONDS,
                normal="The flush interval, a put and an append: p99 below one second on S3.",
                page="alerts.md#produceslow",
            ),
            Panel(
                title="Fetch",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        '(rate(penstock_request_duration_seconds_bucket{api="Fetch"}[$__rate_interval])))',
                        "p99",
                    ),
                ],
                unit=Unit.SECONDS,
                normal="With the time for which a fetch waits for records: fetch.max.wait.ms of idle consumers.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Event loop",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (instance, le) "
                        "(rate(penstock_loop_lag_seconds_bucket[$__rate_interval])))",
                        "{{instance}}",
                    )
                ],
                unit=Unit.SECONDS,
                normal="p99 below 0.1 s. More means that the agent lacks processor time.",
                page="alerts.md#produceslow",
            ),
        ),
        "Errors": (
            Panel(
                title="Rejected batches",
                queries=[
                    query(
                        "sum by (error) (rate(penstock_produce_batches_rejected_total[$__rate_interval]))", "{{error}}"
                    )
                ],
                unit=Unit.PER_SECOND,
                normal="0 but for what clients do wrong.",
                page="alerts.md#producerejected",
            ),
            Panel(
                title="Throttled requests",
                queries=[
                    query("sum by (entity) (rate(penstock_quota_throttled_total[$__rate_interval]))", "{{entity}}"),
                ],
                unit=Unit.PER_SECOND,
                normal="0 without quotas.",
                page="quotas.md",
            ),
            Panel(
                title="Security",
                queries=[
                    query("sum(rate(penstock_authentication_failures_total[$__rate_interval]))", "failed logins"),
                    query("sum(rate(penstock_authorization_denials_total[$__rate_interval]))", "denials"),
                    query(
                        "sum by (reason) (rate(penstock_connections_closed_total[$__rate_interval]))",
                        "closed: {{reason}}",
                    ),
                ],
                unit=Unit.PER_SECOND,
                normal="Near 0. Connections that the agent closed are faults of clients.",
                page="security.md",
            ),
        ),
        "Agents": (
            Panel(
                title="Processor time",
                queries=[
                    query("sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))", "{{instance}}")
                ],
                unit=Unit.CPUS,
                normal="Below one core: an agent is one process.",
                page="cluster.md",
            ),
            Panel(
                title="Memory",
                queries=[query("sum by (instance) (process_resident_memory_bytes)", "{{instance}}")],
                unit=Unit.BYTES,
                normal="Level after the read cache is full.",
                page="alerts.md#nearlimits",
            ),
            Panel(
                title="Bytes across zones",
                queries=[
                    query(
                        "sum by (direction, same_zone) (rate(penstock_zone_bytes_total[$__rate_interval]))",
                        "{{direction}}, same zone: {{same_zone}}",
                    )
                ],
                unit=Unit.BYTES_PER_SECOND,
                normal="yes, where clients name their zones.",
                page="cluster.md#zones",
            ),
            Panel(
                title="HTTP port",
                queries=[
                    query(
                        "sum by (route, status) (rate(penstock_http_request_duration_seconds_count[$__rate_interval]))",
                        "{{route}} {{status}}",
                    )
                ],
                unit=Unit.PER_SECOND,
                normal="Catalog, registry and administration. No answers from 500 on.",
                page="monitoring.md#metrics-by-question",
            ),
        ),
    },
)
