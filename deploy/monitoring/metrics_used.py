"""The metrics that expressions name, and those that no board and no alert needs, each with the reason."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_METRIC: Final = re.compile(r"\b(?:penstock|process)_[a-z0-9_]+")
_PARTS_OF_HISTOGRAMS: Final = re.compile(r"_(?:bucket|count|sum)$")
OF_THE_PROCESS: Final = frozenset(
    {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
    }
)
"""The metrics of the Prometheus client's `ProcessCollector` that are used: every agent has them on Linux."""

EXCUSED: Final[Mapping[str, str]] = {
    "penstock_audit_dropped_total": "of the audit log, which few switch on; docs/operations/audit-log.md names it",
    "penstock_audit_events_total": "as above",
    "penstock_audit_outage_seconds": "as above",
    "penstock_audit_waiting_events": "as above",
    "penstock_authentications_total": "successes; failures have a panel",
    "penstock_authorizer_view_age_seconds": "infinite without a session, which SessionsLost reports",
    "penstock_bucket_mismatch": "the agent rejects everything then: ProduceRejected, and the log says why",
    "penstock_cache_bytes": "bounded by an option; hits have a panel",
    "penstock_client_telemetry_instances": "of clients that push metrics, which boards of clients show",
    "penstock_client_telemetry_pushes_total": "as above",
    "penstock_client_telemetry_series_dropped_total": "as above",
    "penstock_clock_confirmation_seconds": "of a clock that is not believed, which ClockOff reports",
    "penstock_clock_step_seconds": "as above",
    "penstock_connections_accepted_total": "open connections have a panel",
    "penstock_connections_unauthenticated": "bounded; open connections have a panel",
    "penstock_disk_full": "of an embedded broker, which has no Prometheus as a rule; /ready says it",
    "penstock_issuer_keys_age_seconds": "of issuers of tokens: docs/operations/oauth.md names it",
    "penstock_issuer_keys_failures_total": "as above",
    "penstock_kernels_loaded": "0 for a second after a start",
    "penstock_ledger_position": "a number without a norm; how far an agent is behind has a panel",
    "penstock_request_throttle_duration_seconds": "the number of throttled requests has a panel",
    "penstock_tls_handshakes_unfinished": "bounded; open connections have a panel",
    "penstock_tls_reload_failures_total": "CertificateEnds comes early enough",
}


def metrics_of(expressions: Iterable[str]) -> frozenset[str]:
    """The metrics that PromQL expressions name; those of a histogram by its own name."""
    names = {name for expression in expressions for name in _METRIC.findall(expression)}
    return frozenset(_PARTS_OF_HISTOGRAMS.sub("", name) for name in names)
