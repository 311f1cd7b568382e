"""For each rule of the alerts: series that raise it, and series that almost do.

Rule: a sample a minute, of the job `p`. Values are in promtool's form: `0+5x9` is 0, 5, 10 ... 45.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Series = Mapping[str, str]
"""Values by series. `{}` stands for the labels of agent `a`, `{b}` for those of agent `b`."""

AGENTS: Final = {"{}": '{job="p",instance="a"}', "{b}": '{job="p",instance="b"}'}
SEVERITIES: Final = ("page", "ticket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is scraped, and whether the alert fires at a moment."""

    alert: str
    severity: str
    series: Series
    at: str
    labels: Mapping[str, str] | None = field(default_factory=lambda: {"job": "p"})
    """The labels of the alert that fires, without those that all have; None where it does not fire."""
    summary: str = ""


def fires(alert: str, severity: str, at: str, summary: str, series: Series, **labels: str) -> Case:
    return Case(alert=alert, severity=severity, series=series, at=at, labels={"job": "p", **labels}, summary=summary)


def quiet(alert: str, severity: str, at: str, series: Series) -> Case:
    return Case(alert=alert, severity=severity, series=series, at=at, labels=None)


def with_labels(name: str, **labels: str) -> str:
    """A series of agent `a` with further labels."""
    pairs = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'{name}{{job="p",instance="a"{pairs}}}'


PRODUCE: Final = "penstock_request_duration_seconds_bucket"
REJECTED: Final = "penstock_produce_batches_rejected_total"
BATCHES: Final = "penstock_produce_batches_total{}"
ERRORS: Final = "penstock_store_errors_total"
REQUESTS: Final = with_labels("penstock_store_requests_total", operation="put")
CHECKS: Final = "penstock_corruption_checks_total"
LAG: Final = with_labels("penstock_group_lag_seconds", group="g", topic="t")
RECORDS: Final = with_labels("penstock_group_lag_records", group="g", topic="t")
CERTIFICATE: Final = with_labels("penstock_tls_certificate_expiry_seconds", listener="TLS")
BYTES: Final = "penstock_ledger_bytes{}"
QUOTA: Final = "penstock_ledger_quota_bytes{}"
PENDING: Final = "penstock_objects_pending_deletion{}"
DELETED: Final = "penstock_gc_deleted_objects_total{}"


def latencies(fast: str, slow: str) -> Series:
    """Produce requests: up to a second, and up to five seconds."""
    return {
        with_labels(PRODUCE, api="Produce", le="1.0"): fast,
        with_labels(PRODUCE, api="Produce", le="5.0"): slow,
        with_labels(PRODUCE, api="Produce", le="+Inf"): slow,
    }


CASES: Final[Sequence[Case]] = (
    fires(
        "AgentsMissing",
        "page",
        "15m",
        "Fewer agents serve clients than the cluster needs.",
        {"penstock_ready{}": "1x3 0x20", "penstock_ready{b}": "1x3"},
    ),
    quiet("AgentsMissing", "page", "10m", {"penstock_ready{}": "1x3 0x20", "penstock_ready{b}": "1x20"}),
    fires(
        "AgentsMissing",
        "page",
        "15m",
        "Fewer agents serve clients than the cluster needs.",
        {"penstock_ready{}": "1x3 stale", 'penstock_ready{job="other",instance="c"}': "1x20"},
    ),
    fires(
        "AgentsMissing",
        "page",
        "68m",
        "Fewer agents serve clients than the cluster needs.",
        {"penstock_ready{}": "1x3 stale", 'penstock_ready{job="other",instance="c"}': "1x90"},
    ),
    quiet(
        "AgentsMissing",
        "page",
        "90m",
        {"penstock_ready{}": "1x3 stale", 'penstock_ready{job="other",instance="c"}': "1x90"},
    ),
    Case(
        alert="AgentsMissing",
        severity="page",
        series={"penstock_ready{}": "1x3 stale"},
        at="3h",
        labels={},
        summary="Fewer agents serve clients than the cluster needs.",
    ),
    fires(
        "NotReady",
        "ticket",
        "10m",
        "a runs and does not serve clients.",
        {"penstock_ready{}": "1x3 0x20"},
        instance="a",
    ),
    quiet("NotReady", "ticket", "5m", {"penstock_ready{}": "1x3 0x20"}),
    fires(
        "LedgerOutage",
        "page",
        "5m",
        "The ledger has not answered for 5m 0s: no record is acknowledged.",
        {"penstock_ledger_outage_seconds{}": "0+60x9", "penstock_ledger_outage_seconds{b}": "0x9"},
    ),
    quiet("LedgerOutage", "page", "5m", {"penstock_ledger_outage_seconds{}": "0 20 0 25 0 29 0"}),
    fires(
        "StoreOutage",
        "page",
        "5m",
        "The bucket has failed for 5m 0s: no record is acknowledged.",
        {"penstock_store_outage_seconds{}": "0+60x9"},
    ),
    quiet("StoreOutage", "page", "5m", {"penstock_store_outage_seconds{}": "0 20 0 25 0 29 0"}),
    fires(
        "StateDigestMismatch",
        "page",
        "5m",
        "Agents computed different states: others_differ.",
        {with_labels(CHECKS, outcome="others_differ"): "0x3 1x9"},
        outcome="others_differ",
    ),
    quiet(
        "StateDigestMismatch",
        "page",
        "5m",
        {with_labels(CHECKS, outcome="agreed"): "0+1x9", with_labels(CHECKS, outcome="incomplete"): "0+1x9"},
    ),
    fires(
        "ObjectsMissing",
        "page",
        "5m",
        "Consumers met objects that are missing from the bucket.",
        {"penstock_fetch_missing_objects_total{}": "0x3 1x9"},
    ),
    quiet("ObjectsMissing", "page", "30m", {"penstock_fetch_missing_objects_total{}": "0x3 1x40"}),
    fires("LedgerFull", "ticket", "15m", "The ledger uses 75% of its quota.", {BYTES: "75x20", QUOTA: "100x20"}),
    quiet("LedgerFull", "ticket", "15m", {BYTES: "70x20", QUOTA: "100x20"}),
    fires(
        "LedgerFull",
        "page",
        "15m",
        "The ledger uses 95% of its quota: it soon accepts no record.",
        {BYTES: "95x20", QUOTA: "100x20"},
    ),
    quiet("LedgerFull", "page", "15m", {BYTES: "90x20", QUOTA: "100x20"}),
    fires(
        "ProduceSlow",
        "page",
        "20m",
        "One produce request in a hundred takes longer than 4.6s.",
        latencies("0+90x30", "0+100x30"),
    ),
    quiet("ProduceSlow", "page", "20m", latencies("0+995x30", "0+1000x30")),
    quiet(
        "ProduceSlow",
        "page",
        "20m",
        {**latencies("0+90x30", "0+100x30"), "penstock_store_outage_seconds{b}": "0+60x30"},
    ),
    quiet(
        "ProduceSlow",
        "page",
        "20m",
        {**latencies("0+90x30", "0+100x30"), "penstock_ledger_outage_seconds{}": "0+60x30"},
    ),
    fires(
        "ProduceRejected",
        "ticket",
        "25m",
        "2% of all record batches are rejected with NOT_LEADER_OR_FOLLOWER.",
        {
            with_labels(REJECTED, error="NOT_LEADER_OR_FOLLOWER"): "0+20x30",
            with_labels(REJECTED, error="MESSAGE_TOO_LARGE"): "0+5x30",
            BATCHES: "0+975x30",
        },
        error="NOT_LEADER_OR_FOLLOWER",
    ),
    quiet(
        "ProduceRejected",
        "ticket",
        "25m",
        {with_labels(REJECTED, error="MESSAGE_TOO_LARGE"): "0+5x30", BATCHES: "0+995x30"},
    ),
    quiet(  # A fault of three minutes, which a range as long as `for` would report at its end.
        "ProduceRejected",
        "ticket",
        "15m",
        {with_labels(REJECTED, error="NOT_LEADER_OR_FOLLOWER"): "0x4 300 600 900x30", BATCHES: "0+1000x30"},
    ),
    fires(
        "StoreErrors",
        "ticket",
        "25m",
        "10% of the bucket's put requests fail.",
        {with_labels(ERRORS, operation="put", reason="timeout"): "0+10x30", REQUESTS: "0+100x30"},
        operation="put",
    ),
    quiet(
        "StoreErrors",
        "ticket",
        "25m",
        {with_labels(ERRORS, operation="put", reason="cancelled"): "0+50x30", REQUESTS: "0+100x30"},
    ),
    quiet(
        "StoreErrors",
        "ticket",
        "15m",
        {with_labels(ERRORS, operation="put", reason="timeout"): "0x4 100 200 300x30", REQUESTS: "0+100x30"},
    ),
    fires(
        "StoreThrottled",
        "ticket",
        "30m",
        "The bucket throttles 1 requests a second.",
        {with_labels(ERRORS, operation="put", reason="throttled"): "0+60x40"},
    ),
    quiet("StoreThrottled", "ticket", "30m", {with_labels(ERRORS, operation="put", reason="timeout"): "0+60x40"}),
    quiet(
        "StoreThrottled",
        "ticket",
        "22m",
        {with_labels(ERRORS, operation="put", reason="throttled"): "0x4 0+60x9 540x40"},
    ),
    fires(
        "GroupLag",
        "ticket",
        "40m",
        "Group g is 50m 0s behind in topic t, and falls further behind.",
        {LAG: "600+60x60", RECORDS: "100+50x60"},
        group="g",
        topic="t",
    ),
    quiet("GroupLag", "ticket", "40m", {LAG: "600+60x60", RECORDS: "9000-50x60"}),
    fires(
        "TransactionHangs",
        "page",
        "30m",
        "A transaction has been open for 30m 0s: read_committed waits for it.",
        {"penstock_transaction_oldest_open_seconds{}": "0+60x40"},
    ),
    quiet("TransactionHangs", "page", "20m", {"penstock_transaction_oldest_open_seconds{}": "0+60x40"}),
    quiet(
        "TransactionHangs",
        "page",
        "30m",
        {
            "penstock_transaction_oldest_open_seconds{}": "0+60x40",
            "penstock_ledger_outage_seconds{b}": "0+60x40",
        },
    ),
    fires(
        "LastStableOffsetStuck",
        "ticket",
        "15m",
        "Consumers of t with read_committed wait for records that are 15m 0s old.",
        {with_labels("penstock_last_stable_offset_lag_seconds", topic="t"): "0+60x20"},
        topic="t",
    ),
    quiet(
        "LastStableOffsetStuck",
        "ticket",
        "15m",
        {with_labels("penstock_last_stable_offset_lag_seconds", topic="t"): "0+60x7 0+60x7 0x9"},
    ),
    fires(
        "ArchiveFails",
        "ticket",
        "50m",
        "Archive passes fail: records stay in the intake, and tables fall behind.",
        {with_labels("penstock_archive_passes_total", outcome="failed"): "0+1x60"},
    ),
    quiet(
        "ArchiveFails",
        "ticket",
        "50m",
        {
            with_labels("penstock_archive_passes_total", outcome="failed"): "0x10 1x60",
            with_labels("penstock_archive_passes_total", outcome="done"): "0+1x60",
        },
    ),
    quiet(
        "ArchiveFails",
        "ticket",
        "41m",
        {
            with_labels("penstock_archive_passes_total", outcome="failed"): "0x10 1 1 2x60",
            with_labels("penstock_archive_passes_total", outcome="done"): "0+1x60",
        },
    ),
    fires(  # One topic, which is tried again after ten minutes.
        "ArchiveFails",
        "ticket",
        "50m",
        "Archive passes fail: records stay in the intake, and tables fall behind.",
        {with_labels("penstock_archive_passes_total", outcome="failed"): "0x5 1x10 2x10 3x10 4x10 5x10"},
    ),
    fires(
        "TableBehind",
        "ticket",
        "35m",
        "The table of t lacks records that are 35m 0s old.",
        {with_labels("penstock_topic_unarchived_seconds", topic="t"): "0+60x60"},
        topic="t",
    ),
    quiet(
        "TableBehind", "ticket", "50m", {with_labels("penstock_topic_unarchived_seconds", topic="t"): "0+60x20 0+60x40"}
    ),
    fires(
        "TailManifestStale",
        "ticket",
        "10m",
        "The tail manifest is 10m 0s old: Spark sees no newer records.",
        {"penstock_tail_manifest_age_seconds{}": "0+60x20", "penstock_tail_manifest_age_seconds{b}": "0x20"},
    ),
    quiet("TailManifestStale", "ticket", "10m", {"penstock_tail_manifest_age_seconds{}": "60x20"}),
    fires(
        "ExternalCatalogLag",
        "ticket",
        "30m",
        "Catalog hive lacks commits that are 30m 0s old.",
        {with_labels("penstock_external_catalog_lag_seconds", catalog="hive"): "0+60x40"},
        catalog="hive",
    ),
    quiet(
        "ExternalCatalogLag",
        "ticket",
        "20m",
        {with_labels("penstock_external_catalog_lag_seconds", catalog="hive"): "0+60x40"},
    ),
    fires(
        "SessionsLost",
        "ticket",
        "30m",
        "Agents lost 3 sessions within half an hour.",
        {"penstock_sessions_lost_total{}": "0x5 1x9 2x9 3x9"},
    ),
    quiet("SessionsLost", "ticket", "30m", {"penstock_sessions_lost_total{}": "0x5 1x30"}),
    quiet("SessionsLost", "ticket", "35m", {"penstock_sessions_lost_total{}": "5x9 6x5 7x40"}),
    fires(
        "TasksFail",
        "ticket",
        "10m",
        "Background tasks of a failed and were started again.",
        {"penstock_background_restarts_total{}": "0x5 1x9", "penstock_background_restarts_total{b}": "0x14"},
        instance="a",
    ),
    quiet("TasksFail", "ticket", "30m", {"penstock_background_restarts_total{}": "0x5 1x40"}),
    fires(
        "NoMaintenanceLeader",
        "page",
        "10m",
        "0 agents say that they are the maintenance leader, not one.",
        {"penstock_maintenance_leader{}": "1x3 0x20", "penstock_maintenance_leader{b}": "0x20"},
    ),
    quiet(
        "NoMaintenanceLeader",
        "page",
        "10m",
        {"penstock_maintenance_leader{}": "1x3 0x20", "penstock_maintenance_leader{b}": "0x4 1x20"},
    ),
    fires(
        "ClockOff",
        "ticket",
        "20m",
        "a does not trust its clock: nothing expires there.",
        {"penstock_clock_checked{}": "1x3 0x30", "penstock_ready{}": "1x40"},
        instance="a",
    ),
    quiet("ClockOff", "ticket", "10m", {"penstock_clock_checked{}": "1x3 0x30", "penstock_ready{}": "1x40"}),
    quiet("ClockOff", "ticket", "20m", {"penstock_clock_checked{}": "0x40", "penstock_ready{}": "0x40"}),
    fires(
        "GarbageGrows",
        "ticket",
        "8h",
        "480 objects wait for deletion, and none was deleted in two hours.",
        {PENDING: "0+1x600", DELETED: "7x600"},
    ),
    quiet("GarbageGrows", "ticket", "8h", {PENDING: "0+1x600", DELETED: "0+1x600"}),
    quiet("GarbageGrows", "ticket", "425m", {PENDING: "0x420 20x10 0x60", DELETED: "0x430 20x60"}),
    fires(
        "NearLimits",
        "ticket",
        "15m",
        "a is near its limit of connections, open files or memory.",
        {
            with_labels("penstock_connections", listener="A"): "9000x20",
            with_labels("penstock_connections", listener="B"): "8000x20",
        },
        instance="a",
    ),
    fires(
        "NearLimits",
        "ticket",
        "15m",
        "a is near its limit of connections, open files or memory.",
        {"process_open_fds{}": "900x20", "process_max_fds{}": "1000x20", "penstock_ready{}": "1x20"},
        instance="a",
    ),
    fires(
        "NearLimits",
        "ticket",
        "15m",
        "a is near its limit of connections, open files or memory.",
        {"process_resident_memory_bytes{}": "95x20", "penstock_memory_limit_bytes{}": "100x20"},
        instance="a",
    ),
    quiet(
        "NearLimits",
        "ticket",
        "15m",
        {
            "penstock_connections{}": "16000x20",
            "process_open_fds{}": "800x20",
            "process_max_fds{}": "1000x20",
            "penstock_ready{}": "1x20",
            "process_resident_memory_bytes{}": "90x20",
            "penstock_memory_limit_bytes{}": "100x20",
        },
    ),
    quiet("NearLimits", "ticket", "15m", {"process_open_fds{}": "900x20", "process_max_fds{}": "1000x20"}),
    fires(
        "CertificateEnds",
        "ticket",
        "1m",
        "The certificate of listener TLS expires in 10d 0h 0m 0s.",
        {CERTIFICATE: "864000x3"},
        instance="a",
        listener="TLS",
    ),
    quiet("CertificateEnds", "ticket", "1m", {CERTIFICATE: "1296000x3"}),
    fires(
        "CertificateEnds",
        "page",
        "1m",
        "The certificate of listener TLS expires in 1d 0h 0m 0s.",
        {CERTIFICATE: "86400x3"},
        instance="a",
        listener="TLS",
    ),
    quiet("CertificateEnds", "page", "1m", {CERTIFICATE: "864000x3"}),
)


def promtool_tests(alert: str, rules_file: str, runbook: str) -> Mapping[str, object]:
    """An alert's cases in the form of `promtool test rules`; `runbook` is the page of the alerts' sections."""
    return {
        "rule_files": [rules_file],
        "evaluation_interval": "1m",
        "tests": [_test(case, runbook) for case in CASES if case.alert == alert],
    }


def _test(case: Case, runbook: str) -> Mapping[str, object]:
    series = []
    for name, values in case.series.items():
        for short, labels in AGENTS.items():
            name = name.replace(short, labels)
        series.append({"series": name, "values": values})
    return {"interval": "1m", "input_series": series, **_expected(case, runbook)}


def _expected(case: Case, runbook: str) -> Mapping[str, object]:
    """A case that fires names the whole alert; in one that does not, no alert of that name and severity fires."""
    if case.labels is None:
        firing = f'ALERTS{{alertname="{case.alert}",severity="{case.severity}",alertstate="firing"}}'
        return {"promql_expr_test": [{"expr": firing, "eval_time": case.at, "exp_samples": []}]}
    alert = {
        "exp_labels": {**case.labels, "severity": case.severity, "component": "penstock"},
        "exp_annotations": {"summary": case.summary, "runbook_url": f"{runbook}#{case.alert.lower()}"},
    }
    return {"alert_rule_test": [{"alertname": case.alert, "eval_time": case.at, "exp_alerts": [alert]}]}
