"""The alerts: what is wrong, for how long before an alert is sent, and how urgent it is.

Rule: metrics of the whole cluster come from the maintenance leader alone, so `max` and `sum` by job hold over its
handover. Every alert is of one cluster, which is one `job`. Each has a section of its name in
docs/operations/alerts.md.

Rule: what has to last lasts longer than the range of its rates. Otherwise a moment's fault, which its range remembers,
would be reported long after its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.limits import CONNECTIONS_MAX

PAGE: Final = "page"
"""People who use the cluster notice it."""
TICKET: Final = "ticket"
"""They will notice it later, unless an operator acts."""
RUNBOOK: Final = "docs/operations/alerts.md"
"""The page with a section for each alert, relative to Penstock's sources."""
RUNBOOK_MARK: Final = "RUNBOOK_URL"
"""The chart replaces it by the page's address in `runbook_url`."""
AGENTS_MIN: Final = 1
"""How many agents rules.yaml expects; the chart puts two thirds of its replicas there."""
AGENTS_MIN_MARK: Final = "AGENTS_MIN"
"""The chart replaces it by that number in the expression."""
AGENTS_JOB_MARK: Final = "{AGENTS_JOB}"
"""The chart replaces it by a selector, as its number of agents is that of its own cluster; by nothing where it does not
know that cluster's job.
"""
NEAR_LIMIT_RATIO: Final = 0.8
MEMORY_RATIO_MAX: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule. Two rules of one name are two stages of the same fault."""

    name: str
    expression: str
    lasting: str = ""
    """For how long the expression has to hold, as Prometheus writes it; at once where it is empty."""
    severity: str = TICKET
    summary: str
    """One sentence with the value; `$labels` and `$value` as in Prometheus' templates."""

    @property
    def anchor(self) -> str:
        """The section of this alert in the runbook: the anchor that Markdown gives to a heading of its name."""
        return self.name.lower()


ALERTS: Final[Sequence[Alert]] = (
    Alert(
        name="AgentsMissing",
        # A cluster of which nothing is scraped has no sum. The second line finds it for an hour after the last scrape.
        # The last line finds it later, and one that was never scraped, unless another cluster has series of that name.
        expression=(
            f"(sum by (job) (penstock_ready{AGENTS_JOB_MARK}) < {AGENTS_MIN_MARK}) "
            f"or (sum by (job) (max_over_time(penstock_ready{AGENTS_JOB_MARK}[70m])) unless on (job) penstock_ready) "
            f"or absent_over_time(penstock_ready{AGENTS_JOB_MARK}[1h])"
        ),
        lasting="5m",
        severity=PAGE,
        summary="Fewer agents serve clients than the cluster needs.",
    ),
    Alert(
        name="NotReady",
        expression="penstock_ready == 0",
        lasting="3m",
        summary="{{ $labels.instance }} runs and does not serve clients.",
    ),
    Alert(
        name="LedgerOutage",
        expression="max by (job) (penstock_ledger_outage_seconds) > 30",
        lasting="1m",
        severity=PAGE,
        summary="The ledger has not answered for {{ $value | humanizeDuration }}: no record is acknowledged.",
    ),
    Alert(
        name="StoreOutage",
        expression="max by (job) (penstock_store_outage_seconds) > 30",
        lasting="1m",
        severity=PAGE,
        summary="The bucket has failed for {{ $value | humanizeDuration }}: no record is acknowledged.",
    ),
    Alert(
        name="StateDigestMismatch",
        expression=(
            'sum by (job, outcome) (increase(penstock_corruption_checks_total{outcome!~"agreed|incomplete"}[15m])) > 0'
        ),
        severity=PAGE,
        summary="Agents computed different states: {{ $labels.outcome }}.",
    ),
    Alert(
        name="ObjectsMissing",
        expression="sum by (job) (increase(penstock_fetch_missing_objects_total[15m])) > 0",
        severity=PAGE,
        summary="Consumers met objects that are missing from the bucket.",
    ),
    Alert(
        name="LedgerFull",
        expression="max by (job) (penstock_ledger_bytes / penstock_ledger_quota_bytes) > 0.7 <= 0.9",
        lasting="10m",
        summary="The ledger uses {{ $value | humanizePercentage }} of its quota.",
    ),
    Alert(
        name="LedgerFull",
        expression="max by (job) (penstock_ledger_bytes / penstock_ledger_quota_bytes) > 0.9",
        lasting="10m",
        severity=PAGE,
        summary="The ledger uses {{ $value | humanizePercentage }} of its quota: it soon accepts no record.",
    ),
    Alert(
        name="ProduceSlow",
        # While etcd or the bucket is away, requests end at their time-outs, and that outage has its own page.
        expression=(
            "histogram_quantile(0.99, sum by (job, le) "
            '(rate(penstock_request_duration_seconds_bucket{api="Produce"}[5m]))) > 2 '
            "unless on (job) (max by (job) (penstock_ledger_outage_seconds) > 30 "
            "or max by (job) (penstock_store_outage_seconds) > 30)"
        ),
        lasting="10m",
        severity=PAGE,
        summary="One produce request in a hundred takes longer than {{ $value | humanizeDuration }}.",
    ),
    Alert(
        name="ProduceRejected",
        expression=(
            "sum by (job, error) (rate(penstock_produce_batches_rejected_total[5m])) / on (job) group_left () "
            "(sum by (job) (rate(penstock_produce_batches_rejected_total[5m])) "
            "+ sum by (job) (rate(penstock_produce_batches_total[5m]))) > 0.01"
        ),
        lasting="10m",
        summary="{{ $value | humanizePercentage }} of all record batches are rejected with {{ $labels.error }}.",
    ),
    Alert(
        name="StoreErrors",
        expression=(
            'sum by (job, operation) (rate(penstock_store_errors_total{reason!="cancelled"}[5m])) '
            "/ sum by (job, operation) (rate(penstock_store_requests_total[5m])) > 0.05"
        ),
        lasting="10m",
        summary="{{ $value | humanizePercentage }} of the bucket's {{ $labels.operation }} requests fail.",
    ),
    Alert(
        name="StoreThrottled",
        expression='sum by (job) (rate(penstock_store_errors_total{reason="throttled"}[5m])) > 0.1',
        lasting="15m",
        summary="The bucket throttles {{ $value | humanize }} requests a second.",
    ),
    Alert(
        name="GroupLag",
        expression=(
            "max by (job, group, topic) (penstock_group_lag_seconds) > 600 "
            "and deriv(max by (job, group, topic) (penstock_group_lag_records)[15m:1m]) > 0"
        ),
        lasting="15m",
        summary=(
            "Group {{ $labels.group }} is {{ $value | humanizeDuration }} behind in topic {{ $labels.topic }}, and "
            "falls further behind."
        ),
    ),
    Alert(
        name="TransactionHangs",
        # While etcd is away no transaction can end, and that outage has its own page.
        expression=(
            "max by (job) (penstock_transaction_oldest_open_seconds) > 1200 "
            "unless on (job) max by (job) (penstock_ledger_outage_seconds) > 30"
        ),
        lasting="2m",
        severity=PAGE,
        summary="A transaction has been open for {{ $value | humanizeDuration }}: read_committed waits for it.",
    ),
    Alert(
        name="LastStableOffsetStuck",
        expression="max by (job, topic) (penstock_last_stable_offset_lag_seconds) > 300",
        lasting="5m",
        summary=(
            "Consumers of {{ $labels.topic }} with read_committed wait for records that are "
            "{{ $value | humanizeDuration }} old."
        ),
    ),
    Alert(
        name="ArchiveFails",
        # A topic that fails is tried again after up to ten minutes, and a range has to have one of these passes.
        expression='sum by (job) (increase(penstock_archive_passes_total{outcome="failed"}[15m])) > 0',
        lasting="30m",
        summary="Archive passes fail: records stay in the intake, and tables fall behind.",
    ),
    Alert(
        name="TableBehind",
        expression="max by (job, topic) (penstock_topic_unarchived_seconds) > 900",
        lasting="15m",
        summary="The table of {{ $labels.topic }} lacks records that are {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="TailManifestStale",
        expression="max by (job) (penstock_tail_manifest_age_seconds) > 60",
        lasting="5m",
        summary="The tail manifest is {{ $value | humanizeDuration }} old: Spark sees no newer records.",
    ),
    Alert(
        name="ExternalCatalogLag",
        expression="max by (job, catalog) (penstock_external_catalog_lag_seconds) > 900",
        lasting="10m",
        summary="Catalog {{ $labels.catalog }} lacks commits that are {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="SessionsLost",
        # Prometheus extrapolates an increase to the whole window: of two it makes 2.03.
        expression="sum by (job) (increase(penstock_sessions_lost_total[30m])) > 2.5",
        summary='Agents lost {{ printf "%.0f" $value }} sessions within half an hour.',
    ),
    Alert(
        name="TasksFail",
        expression="sum by (job, instance) (increase(penstock_background_restarts_total[15m])) > 0",
        summary="Background tasks of {{ $labels.instance }} failed and were started again.",
    ),
    Alert(
        name="NoMaintenanceLeader",
        expression="sum by (job) (penstock_maintenance_leader) != 1",
        lasting="2m",
        severity=PAGE,
        summary="{{ $value }} agents say that they are the maintenance leader, not one.",
    ),
    Alert(
        name="ClockOff",
        # An agent that waits at its start has not checked its clock yet, and NotReady reports it.
        expression="penstock_clock_checked == 0 and on (job, instance) penstock_ready == 1",
        lasting="10m",
        summary="{{ $labels.instance }} does not trust its clock: nothing expires there.",
    ),
    Alert(
        name="GarbageGrows",
        expression=(
            "max by (job) (penstock_objects_pending_deletion) "
            "> max by (job) (penstock_objects_pending_deletion offset 6h) "
            "and on (job) sum by (job) (increase(penstock_gc_deleted_objects_total[2h])) == 0"
        ),
        # Garbage waits for gc-min-age-s, ten minutes by default: the first after a calm time is no fault.
        lasting="1h",
        summary="{{ $value | humanize }} objects wait for deletion, and none was deleted in two hours.",
    ),
    Alert(
        name="NearLimits",
        expression=(
            f"sum by (job, instance) (penstock_connections) > {round(CONNECTIONS_MAX * NEAR_LIMIT_RATIO)} "
            f"or (process_open_fds / process_max_fds > {NEAR_LIMIT_RATIO} and on (job, instance) penstock_ready) "
            f"or process_resident_memory_bytes / on (job, instance) penstock_memory_limit_bytes > {MEMORY_RATIO_MAX}"
        ),
        lasting="10m",
        summary="{{ $labels.instance }} is near its limit of connections, open files or memory.",
    ),
    Alert(
        name="CertificateEnds",
        expression=(
            "min by (job, instance, listener) (penstock_tls_certificate_expiry_seconds) < 14 * 86400 >= 3 * 86400"
        ),
        summary="The certificate of listener {{ $labels.listener }} expires in {{ $value | humanizeDuration }}.",
    ),
    Alert(
        name="CertificateEnds",
        expression="min by (job, instance, listener) (penstock_tls_certificate_expiry_seconds) < 3 * 86400",
        severity=PAGE,
        summary="The certificate of listener {{ $labels.listener }} expires in {{ $value | humanizeDuration }}.",
    ),
)


def rules(
    agents_min: int | str = AGENTS_MIN,
    agents_job: str = "",
    runbook: str = RUNBOOK,
    alerts: Sequence[Alert] = ALERTS,
) -> Mapping[str, object]:
    """The rules as Prometheus reads them: the contents of rules.yaml.

    `agents_min`: below so many ready agents AgentsMissing fires; a text that the chart replaces by a number.
    `agents_job`: the selector of the cluster that has so many, as `{job="a"}`; all clusters where it is empty.
    `runbook`: the address of the page with the alerts' sections.
    """
    written = [_rule(alert, str(agents_min), agents_job, runbook) for alert in alerts]
    return {"groups": [{"name": "penstock", "rules": written}]}


def _rule(alert: Alert, agents_min: str, agents_job: str, runbook: str) -> Mapping[str, object]:
    lasting = {"for": alert.lasting} if alert.lasting else {}
    return {
        "alert": alert.name,
        "expr": alert.expression.replace(AGENTS_JOB_MARK, agents_job).replace(AGENTS_MIN_MARK, agents_min),
        **lasting,
        "labels": {"severity": alert.severity, "component": "penstock"},
        "annotations": {"summary": alert.summary, "runbook_url": f"{runbook}#{alert.anchor}"},
    }
