"""Ledger: appends, the state that follows from them, sessions, and transactions."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

LEDGER: Final = Board(
    name="Ledger",
    rows={
        "Ledger": (
            Panel(
                title="Appends and entries",
                queries=[
                    query("sum(rate(penstock_ledger_appends_total[$__rate_interval]))", "appends"),
                    query("max(rate(penstock_ledger_entries_applied_total[$__rate_interval]))", "entries applied"),
                    query("sum(rate(penstock_ledger_errors_total[$__rate_interval]))", "errors"),
                ],
                unit=Unit.PER_SECOND,
                normal="About four appends a second for each agent under load. No errors.",
                page="etcd.md",
            ),
            Panel(
                title="Append latency, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(penstock_ledger_append_duration_seconds_bucket[$__rate_interval])))",
                        "p99",
                    )
                ],
                unit=Unit.SECONDS,
                normal="Below 0.1 s: etcd on a disk of its own.",
                page="etcd.md#faults",
            ),
            Panel(
                title="Size against the quota",
                queries=[
                    query("max(penstock_ledger_bytes)", "used"),
                    query("max(penstock_ledger_quota_bytes)", "quota"),
                ],
                unit=Unit.BYTES,
                normal="Level: snapshots let the ledger be trimmed.",
                page="alerts.md#ledgerfull",
            ),
        ),
        "State": (
            Panel(
                title="Appends that an agent has not applied",
                queries=[query("max by (instance) (penstock_ledger_apply_lag_entries)", "{{instance}}")],
                unit=Unit.COUNT,
                normal="A handful. An agent that falls behind lacks processor time.",
                page="etcd.md#faults",
            ),
            Panel(
                title="Snapshots",
                queries=[query("sum(increase(penstock_snapshots_total[1h]))", "in an hour")],
                unit=Unit.COUNT,
                normal="One for each 4,000 entries or 16 MiB of them.",
                page="recovery.md",
            ),
            Panel(
                title="Comparisons of the state's digest",
                queries=[
                    query(
                        "sum by (outcome) (increase(penstock_corruption_checks_total[$__rate_interval]))", "{{outcome}}"
                    )
                ],
                unit=Unit.COUNT,
                normal="agreed, and now and then incomplete.",
                page="alerts.md#statedigestmismatch",
            ),
        ),
        "Agents": (
            Panel(
                title="Maintenance leader",
                queries=[
                    query("sum by (instance) (penstock_maintenance_leader)", "{{instance}}"),
                    query("changes(max(penstock_maintenance_leader_epoch)[1h:1m])", "handovers in an hour"),
                ],
                unit=Unit.COUNT,
                normal="1 on one agent.",
                page="alerts.md#nomaintenanceleader",
            ),
            Panel(
                title="Versions",
                queries=[
                    query("count by (version) (penstock_build_info)", "agents of {{version}}"),
                    query("max(penstock_rules_version)", "rules in force"),
                ],
                unit=Unit.COUNT,
                normal="One version, and two during an upgrade. The rules follow once every agent knows them.",
                page="upgrade.md#upgrade-a-cluster",
            ),
            Panel(
                title="Lost sessions and failed tasks",
                queries=[
                    query("sum(increase(penstock_sessions_lost_total[$__rate_interval]))", "sessions"),
                    query("sum(increase(penstock_background_restarts_total[$__rate_interval]))", "tasks"),
                    query("sum by (task) (increase(penstock_background_errors_total[$__rate_interval]))", "{{task}}"),
                    query("sum by (task) (penstock_background_topics_failing)", "topics paused: {{task}}"),
                ],
                unit=Unit.COUNT,
                normal="0.",
                page="alerts.md#tasksfail",
            ),
            Panel(
                title="Clocks",
                queries=[query("max by (instance) (abs(penstock_clock_offset_seconds))", "{{instance}}")],
                unit=Unit.SECONDS,
                normal="Offsets below a second.",
                page="alerts.md#clockoff",
            ),
            Panel(
                title="Clocks that are not trusted",
                queries=[query("sum(penstock_clock_checked == bool 0)", "not trusted")],
                unit=Unit.COUNT,
                normal="0, but for agents that start.",
                page="alerts.md#clockoff",
            ),
        ),
        "Transactions": (
            Panel(
                title="Open transactions",
                queries=[
                    query("max(penstock_transactions_open)", "open"),
                    query("max(penstock_transactional_ids)", "known ids"),
                ],
                unit=Unit.COUNT,
                normal="At most one for each transactional producer.",
                page="alerts.md#transactionhangs",
            ),
            Panel(
                title="Age of the oldest open transaction",
                queries=[query("max(penstock_transaction_oldest_open_seconds)", "oldest")],
                unit=Unit.SECONDS,
                normal="Below the producers' transaction.timeout.ms.",
                page="alerts.md#transactionhangs",
            ),
            Panel(
                title="How transactions end",
                queries=[
                    query("sum by (how) (rate(penstock_transactions_ended_total[$__rate_interval]))", "{{how}}"),
                    query("sum(rate(penstock_transactions_started_total[$__rate_interval]))", "started"),
                    query(
                        "sum(rate(penstock_transactions_fenced_requests_total[$__rate_interval]))", "fenced requests"
                    ),
                ],
                unit=Unit.PER_SECOND,
                normal="committed. expired and fenced belong to producers that died.",
                page="groups.md",
            ),
        ),
    },
)
