"""Topics: how large they are, and how far tables and read_committed are behind."""

from typing import Final

from deploy.monitoring.panels import Board, Panel, Unit, query

TOPICS: Final = Board(
    name="Topics",
    rows={
        "Size": (
            Panel(
                title="Topics and partitions",
                queries=[query("max(penstock_topics)", "topics"), query("max(penstock_partitions)", "partitions")],
                unit=Unit.COUNT,
                normal="Level, unless topics are created.",
                page="topics.md",
                is_stat=True,
            ),
            Panel(
                title="Stored bytes of the largest topics",
                queries=[query("topk(20, sum by (topic) (penstock_topic_stored_bytes))", "{{topic}}")],
                unit=Unit.BYTES,
                normal="Grows up to the retention of the topic.",
                page="topics.md",
            ),
            Panel(
                title="Stored bytes, before and after the archive",
                queries=[query("sum by (where) (penstock_topic_stored_bytes)", "{{where}}")],
                unit=Unit.BYTES,
                normal="The intake stays small: it holds what has come since the last archive pass.",
                page="alerts.md#tablebehind",
            ),
        ),
        "Growth": (
            Panel(
                title="Bytes of the busiest topics",
                queries=[
                    query(
                        "topk(20, sum by (topic, direction) (rate(penstock_topic_bytes_total[$__rate_interval])))",
                        "{{topic}} {{direction}}",
                    )
                ],
                unit=Unit.BYTES_PER_SECOND,
                normal="Taken in and given out. An agent counts 500 topics, and all others as other.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Records of the busiest topics",
                queries=[
                    query(
                        "topk(20, sum by (topic, direction) (rate(penstock_topic_records_total[$__rate_interval])))",
                        "{{topic}} {{direction}}",
                    )
                ],
                unit=Unit.PER_SECOND,
                normal="The same in records.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Growth of log ends",
                queries=[query("topk(20, sum by (topic) (deriv(penstock_log_end_offset[10m])))", "{{topic}}")],
                unit=Unit.PER_SECOND,
                normal="As the cluster has it, with up to 5,000 partitions.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Chunks",
                queries=[query("max(penstock_chunks)", "chunks")],
                unit=Unit.COUNT,
                normal="Grows with the log: each costs an agent 72 bytes of memory.",
                page="monitoring.md#metrics-by-question",
            ),
            Panel(
                title="Producer states",
                queries=[
                    query("max(penstock_producer_states)", "states"),
                    query("max(rate(penstock_producer_states_dropped_total[$__rate_interval]))", "dropped a second"),
                ],
                unit=Unit.COUNT,
                normal="None is dropped.",
                page="groups.md",
            ),
        ),
        "Lag": (
            Panel(
                title="Age of the oldest record that is not in its table",
                queries=[query("topk(20, max by (topic) (penstock_topic_unarchived_seconds))", "{{topic}}")],
                unit=Unit.SECONDS,
                normal="About the archive interval, 30 s by default.",
                page="alerts.md#tablebehind",
            ),
            Panel(
                title="Age of what read_committed waits for",
                queries=[query("topk(20, max by (topic) (penstock_last_stable_offset_lag_seconds))", "{{topic}}")],
                unit=Unit.SECONDS,
                normal="The length of transactions.",
                page="alerts.md#laststableoffsetstuck",
            ),
            Panel(
                title="Records that read_committed waits for",
                queries=[query("topk(20, max by (topic) (penstock_last_stable_offset_lag))", "{{topic}}")],
                unit=Unit.COUNT,
                normal="The records of open transactions, and those behind them.",
                page="alerts.md#laststableoffsetstuck",
            ),
        ),
    },
)
