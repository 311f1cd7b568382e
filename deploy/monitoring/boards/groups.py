"""Groups: how far they are behind, and whether they are calm."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

GROUPS: Final = Board(
    name="Groups",
    rows={
        "Lag": (
            Panel(
                title="Lag in seconds",
                queries=[query("topk(20, max by (group, topic) (penstock_group_lag_seconds))", "{{group}} {{topic}}")],
                unit=Unit.SECONDS,
                normal="A few seconds for consumers that run. Level or falling for those that catch up.",
                page="alerts.md#grouplag",
            ),
            Panel(
                title="Lag in records",
                queries=[query("topk(20, max by (group, topic) (penstock_group_lag_records))", "{{group}} {{topic}}")],
                unit=Unit.COUNT,
                normal="As kafka-consumer-groups.sh shows it.",
                page="monitoring.md#lag-of-consumer-groups",
            ),
            Panel(
                title="Groups by state",
                queries=[query("count by (type, state) (penstock_group_info)", "{{type}} {{state}}")],
                unit=Unit.COUNT,
                normal="Groups with members are Stable.",
                page="groups.md",
            ),
        ),
        "Members": (
            Panel(
                title="Members of the largest groups",
                queries=[query("topk(20, max by (group) (penstock_group_members))", "{{group}}")],
                unit=Unit.COUNT,
                normal="As many as consumers run.",
                page="groups.md",
            ),
            Panel(
                title="Rebalances",
                queries=[
                    query("sum by (instance) (rate(penstock_group_rebalances_total[$__rate_interval]))", "{{instance}}")
                ],
                unit=Unit.PER_SECOND,
                normal="0 but when members come and go.",
                page="groups.md",
            ),
            Panel(
                title="Groups by coordinator",
                queries=[query("sum by (instance) (penstock_groups)", "{{instance}}")],
                unit=Unit.COUNT,
                normal="Spread over the agents.",
                page="groups.md",
            ),
            Panel(
                title="Relayed requests",
                queries=[
                    query("sum by (outcome) (rate(penstock_relayed_requests_total[$__rate_interval]))", "{{outcome}}"),
                    query("sum(penstock_relay_connections)", "open relay connections"),
                ],
                unit=Unit.COUNT,
                normal="None without an address that leads to several agents; then answered, and few others.",
                page="cluster.md#one-address-for-all-agents",
            ),
        ),
        "Offsets": (
            Panel(
                title="Committed offsets",
                queries=[query("sum(rate(penstock_offsets_committed_total[$__rate_interval]))", "offsets")],
                unit=Unit.PER_SECOND,
                normal="Partitions of all groups divided by their commit interval.",
                page="groups.md",
            ),
            Panel(
                title="Series left out",
                queries=[query("sum by (kind) (rate(penstock_series_dropped_total[$__rate_interval]))", "{{kind}}")],
                unit=Unit.PER_SECOND,
                normal="0 up to 5,000 topics, groups, and pairs of both.",
                page="monitoring.md#lag-of-consumer-groups",
            ),
        ),
    },
)
