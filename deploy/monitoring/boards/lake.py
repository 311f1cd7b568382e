"""Lake: archive passes, compaction of files, the tail manifest, and external catalogs."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

LAKE: Final = Board(
    name="Lake",
    rows={
        "Archive": (
            Panel(
                title="Passes by outcome",
                queries=[
                    query("sum by (outcome) (rate(penstock_archive_passes_total[$__rate_interval]))", "{{outcome}}")
                ],
                unit=Unit.PER_SECOND,
                normal="done. retried means that another agent was faster.",
                page="alerts.md#archivefails",
            ),
            Panel(
                title="Archived records",
                queries=[query("sum(rate(penstock_archive_records_total[$__rate_interval]))", "records")],
                unit=Unit.PER_SECOND,
                normal="As many as are produced.",
                page="alerts.md#tablebehind",
            ),
            Panel(
                title="Archived bytes",
                queries=[query("sum(rate(penstock_archive_bytes_total[$__rate_interval]))", "bytes")],
                unit=Unit.BYTES_PER_SECOND,
                normal="As many as are produced.",
                page="alerts.md#tablebehind",
            ),
            Panel(
                title="Duration of a pass, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(penstock_archive_duration_seconds_bucket[$__rate_interval])))",
                        "p99",
                    )
                ],
                unit=Unit.SECONDS,
                normal="Below the archive interval.",
                page="alerts.md#tablebehind",
            ),
            Panel(
                title="Chunks that cannot be archived",
                queries=[query("max(penstock_archive_unreadable_chunks)", "chunks")],
                unit=Unit.COUNT,
                normal="0: a damaged or missing object keeps its partitions back.",
                page="damage.md",
            ),
            Panel(
                title="Files dropped by retention",
                queries=[query("sum(rate(penstock_table_files_dropped_total[$__rate_interval]))", "files")],
                unit=Unit.PER_SECOND,
                normal="As retention asks for.",
                page="topics.md",
            ),
        ),
        "Compaction": (
            Panel(
                title="Compactions",
                queries=[
                    query(
                        "sum by (kind, outcome) (rate(penstock_compaction_runs_total[$__rate_interval]))",
                        "{{kind}} {{outcome}}",
                    )
                ],
                unit=Unit.PER_SECOND,
                normal="done, as small files come.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Bytes that compactions replaced",
                queries=[query("sum by (kind) (rate(penstock_compaction_bytes_total[$__rate_interval]))", "{{kind}}")],
                unit=Unit.BYTES_PER_SECOND,
                normal="Each byte is written again once a tier.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Duration of a compaction, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (kind, le) "
                        "(rate(penstock_compaction_duration_seconds_bucket[$__rate_interval])))",
                        "{{kind}}",
                    )
                ],
                unit=Unit.SECONDS,
                normal="Seconds.",
                page="monitoring.md#metrics-by-question",
            ),
        ),
        "Tail manifest": (
            Panel(
                title="Age",
                queries=[query("max(penstock_tail_manifest_age_seconds)", "age")],
                unit=Unit.SECONDS,
                normal="About tail-interval-ms, a second by default.",
                page="alerts.md#tailmanifeststale",
            ),
            Panel(
                title="Size",
                queries=[query("max(penstock_tail_manifest_bytes)", "bytes")],
                unit=Unit.BYTES,
                normal="Follows the number of unarchived chunks.",
                page="alerts.md#tailmanifeststale",
            ),
            Panel(
                title="Topics and truncated partitions",
                queries=[
                    query("max(penstock_tail_manifest_topics)", "topics"),
                    query("max(penstock_tail_manifest_truncated_partitions)", "truncated partitions"),
                ],
                unit=Unit.COUNT,
                normal="No partition is truncated while the archive keeps up.",
                page="alerts.md#tablebehind",
            ),
            Panel(
                title="Time to build it, p99",
                queries=[
                    query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(penstock_tail_manifest_build_duration_seconds_bucket[$__rate_interval])))",
                        "p99",
                    )
                ],
                unit=Unit.SECONDS,
                normal="Below 0.1 s.",
                page="alerts.md#tailmanifeststale",
            ),
        ),
        "External catalogs": (
            Panel(
                title="Lag",
                queries=[query("max by (catalog) (penstock_external_catalog_lag_seconds)", "{{catalog}}")],
                unit=Unit.SECONDS,
                normal="Seconds.",
                page="external-catalogs.md",
            ),
            Panel(
                title="Commits that are missing",
                queries=[
                    query("max by (catalog) (penstock_external_catalog_commit_lag)", "{{catalog}}"),
                    query("max by (catalog) (penstock_external_catalog_conflicts)", "conflicts: {{catalog}}"),
                ],
                unit=Unit.COUNT,
                normal="A few, and no conflicts.",
                page="external-catalogs.md",
            ),
            Panel(
                title="Updates and errors",
                queries=[
                    query(
                        "sum by (catalog) (rate(penstock_external_catalog_updates_total[$__rate_interval]))",
                        "{{catalog}}",
                    ),
                    query(
                        "sum by (catalog) (rate(penstock_external_catalog_errors_total[$__rate_interval]))",
                        "errors: {{catalog}}",
                    ),
                ],
                unit=Unit.PER_SECOND,
                normal="No errors.",
                page="external-catalogs.md",
            ),
        ),
    },
)
