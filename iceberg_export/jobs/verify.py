"""Verifies whole tables against the log: `penstock lake verify`, or on a cluster

    spark-submit --py-files penstock-spark.zip verify.py s3://bucket/prefix --agent 127.0.0.1:9644 orders payments

where verify.py is: from iceberg_export.jobs.verify import main; raise SystemExit(main())

Rule: one table at a time, of one moment: its metadata and the log's index as one agent knows them at once. Executors
read its files straight from the bucket, every value of each; the driver puts together what they found. A table that was
changed so that its files are gone is looked at again. Without an agent the index cannot be compared: that is told.

Exit status: 0 where nothing is wrong, 1 where something is, 2 where it could not be verified.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from iceberg_export.jobs.agents import AgentAddress, NoAnswer, Refused
from iceberg_export.jobs.coverage import LogBounds, not_covered, not_in_table, overlaps
from iceberg_export.jobs.examine import FileReport, FileTask, IndexRow, Span, examine
from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import Lake, TableMissing
from iceberg_export.spark.options import OptionError
from iceberg_export.tail_format import NO_KEY, TailTopic
from protocol.limits import HTTP_ROWS_MAX, VERIFY_FINDINGS_MAX, VERIFY_LOOKS_MAX
from storage.object_store import ObjectMissing, StoreError

if TYPE_CHECKING:
    from pyspark import SparkContext

FILES_A_TASK = 4
"""About as many for each core are handed out at once, between two lines of progress."""
MISSING = "it is not in the bucket"


class CannotVerify(Exception):
    """Nothing is known then: the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What an agent's index has of a topic's archive, with its table at the same moment."""

    metadata_key: str
    log: Mapping[int, LogBounds]
    rows: Mapping[str, Sequence[IndexRow]]
    """By the keys of files."""

    def without_rows(self) -> list[Span]:
        """Archived offsets that have no record, so that no file of the table need answer for them."""
        return [Span(*row[:3]) for row in chain.from_iterable(self.rows.values()) if not row.row_count]


@dataclass(slots=True, kw_only=True)
class TableReport:
    """What was found of a topic's table."""

    topic: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    findings: list[str] = field(default_factory=list[str])
    not_checked: list[str] = field(default_factory=list[str])

    def told(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in ("topic", "files", "rows", "bytes", "findings", "not_checked")}


class Verification:
    """Of the tables of one bucket."""

    def __init__(self, context: "SparkContext", store_url: str, *, agent: AgentAddress | None) -> None:
        self._context = context
        self._store_url = store_url
        self._agent = agent
        self._lake = Lake(open_bucket(store_url, {}))

    def topics(self, names: Sequence[str]) -> list[TailTopic]:
        """Those that are named, or all. Raises `CannotVerify`, `StoreError`, `OptionError`."""
        found = {topic.name: topic for topic in self._lake.manifest().topics}
        if unknown := sorted(set(names) - found.keys()):
            raise CannotVerify(f"there is no topic {', '.join(unknown)} in {self._store_url}")
        return [found[name] for name in dict.fromkeys(names)] if names else [found[name] for name in sorted(found)]

    def table(self, topic: TailTopic) -> TableReport:
        """Verify one. Raises as `topics`, and `NoAnswer` and `Refused` of the agent."""
        looks = 0
        while True:
            looks += 1
            try:
                report, is_gone = self._look(topic)
            except ObjectMissing as error:
                if looks == VERIFY_LOOKS_MAX:
                    return TableReport(topic=topic.name, findings=[f"the table's metadata is not whole: {error}"])
                report, is_gone = TableReport(topic=topic.name), True
            if not is_gone or looks == VERIFY_LOOKS_MAX:
                return report
            _say(f"{topic.name}: files are gone; it is looked at again, in case they were replaced")
            self._lake.bucket.pause(1.0)
            found = {each.topic_id: each for each in self._lake.manifest().topics}
            if topic.topic_id not in found:
                return TableReport(topic=topic.name, not_checked=["the topic was deleted meanwhile"])
            topic = found[topic.topic_id]

    def _look(self, topic: TailTopic) -> tuple[TableReport, bool]:
        """What is found, and whether files are missing, which may have been replaced meanwhile."""
        report = TableReport(topic=topic.name)
        index = None if self._agent is None else self._index(topic, self._agent)
        if index is None:
            report.not_checked.append("the log's index: name an agent")
        else:
            topic = replace(topic, metadata_key=index.metadata_key)
        files = () if topic.metadata_key == NO_KEY else self._lake.files(topic)
        spans = {
            file.key: tuple(Span(*span) for span in found)
            for file, found in zip(files, self._lake.spans(files), strict=True)
        }
        rows: Mapping[str, Sequence[IndexRow]] = {} if index is None else index.rows
        tasks = [FileTask(file=file, spans=spans[file.key], index=tuple(rows.get(file.key, ()))) for file in files]
        is_gone = False
        for done in self._read(topic.name, tasks):
            report.files += 1
            report.rows += done.row_count
            report.bytes += done.byte_count
            report.findings += [f"{done.key}: {finding}" for finding in done.findings]
            is_gone |= MISSING in done.findings
        report.findings += _bounded(overlaps(spans))
        if index is not None:
            report.findings += [
                f"{key}: the log reads it, and it is not in the table" for key in not_in_table(rows, spans.keys())
            ]
            report.findings += _bounded(not_covered(spans, index.log, index.without_rows()))
        return report, is_gone

    def _read(self, topic: str, tasks: Sequence[FileTask]) -> Iterator[FileReport]:
        """The report of each file, as executors come to them."""
        work = partial(_examine, self._store_url)
        wave = max(1, self._context.defaultParallelism) * FILES_A_TASK
        for first in range(0, len(tasks), wave):
            some = tasks[first : first + wave]
            yield from self._context.parallelize(some, len(some)).map(work).collect()
            _say(f"{topic}: {first + len(some):,} of {len(tasks):,} files")

    def _index(self, topic: TailTopic, agent: AgentAddress) -> Index:
        """Of one moment. Raises `CannotVerify`, `NoAnswer`, `Refused`."""
        path = f"/api/lake/{quote(topic.name, safe='')}/index"
        for _ in range(VERIFY_LOOKS_MAX):
            rows: defaultdict[str, list[IndexRow]] = defaultdict(list)
            after, moments = 0, set[str]()
            while True:
                page: dict[str, Any] = json.loads(agent.get(f"{path}?after={after}&limit={HTTP_ROWS_MAX}"))
                moments.add(page["moment"])
                for partition, key, *numbers in page["rows"]:
                    rows[key].append(IndexRow(partition, *numbers))
                after += len(page["rows"])
                if len(moments) > 1 or not page["rows"] or page["is_last"]:
                    break
            if len(moments) == 1:
                log = {number: LogBounds(*bounds) for number, bounds in enumerate(page["partitions"])}
                return Index(metadata_key=page["metadata"], log=log, rows=rows)
        raise CannotVerify(f"the index of {topic.name} changes faster than it is told: verify when less is archived")


def _examine(store_url: str, task: FileTask) -> FileReport:
    """On an executor."""
    try:
        data = open_bucket(store_url, {}).get(task.file.key)
    except ObjectMissing:
        return FileReport(key=task.file.key, row_count=0, byte_count=0, findings=(MISSING,))
    return examine(data, task)


def _say(line: str) -> None:
    """Progress, and why there is no result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _bounded(findings: Iterator[str]) -> list[str]:
    found = list(findings)
    more = len(found) - VERIFY_FINDINGS_MAX
    return [*found[:VERIFY_FINDINGS_MAX], *([f"and {more:,} more like these"] if more > 0 else [])]


def as_text(reports: Sequence[TableReport]) -> str:
    """For people: a line for each table, and one for each finding."""
    lines = [f"{'TOPIC':<40} {'FILES':>8} {'ROWS':>14} {'BYTES':>16}  FINDINGS"]
    for report in reports:
        count = len(report.findings)
        lines.append(
            f"{report.topic:<40} {report.files:>8,} {report.rows:>14,} {report.bytes:>16,}  {count or 'none':>8}"
        )
    lines += [f"FOUND {report.topic}: {finding}" for report in reports for finding in report.findings]
    lines += [f"not checked, {report.topic}: {what}" for report in reports for what in report.not_checked]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The job; returns its exit status."""
    parser = argparse.ArgumentParser(prog="verify", description="Verify tables against the log.")
    parser.add_argument("store", metavar="URL", help="of the bucket, as the agents' --store")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="all, where none is named")
    parser.add_argument("--agent", default="", metavar="HOST:PORT", help="an agent's HTTP address, for the log's index")
    parser.add_argument("--json", action="store_true", help="one JSON document, for programs")
    options = parser.parse_args(arguments)
    from iceberg_export.jobs.session import spark_context

    agent = AgentAddress(options.agent) if options.agent else None
    try:
        with spark_context("penstock lake verify") as context:
            verification = Verification(context, options.store, agent=agent)
            reports = [verification.table(topic) for topic in verification.topics(options.topics)]
    except (CannotVerify, NoAnswer, Refused, OptionError, StoreError, TableMissing) as error:
        _say(f"not verified: {error}")
        return 2
    text = json.dumps([report.told() for report in reports], indent=2) if options.json else as_text(reports)
    sys.stdout.write(text + "\n")
    return 1 if any(report.findings for report in reports) else 0


if __name__ == "__main__":
    raise SystemExit(main())
