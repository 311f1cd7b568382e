"""Verifies whole tables against the log: `penstock lake verify`, or on a cluster

    spark-submit --py-files penstock-spark.zip verify.py s3://bucket/prefix --agent 127.0.0.1:9644 orders payments

where verify.py is: from iceberg_export.jobs.verify import main; raise SystemExit(main())

Tables are verified one after the other. Metadata and log index of a table are of the same ledger position, which one
agent returns. Executors read the files from the bucket, every value of each; the driver combines their results. Where
objects are missing that newer metadata does not name, the table is verified again. Without an agent, rows are compared
with the tail manifest and the table's snapshots, and the report lists what these cannot show.

Exit status: 0 without findings, 1 with findings, 2 where a table could not be verified.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from iceberg_export.jobs.agents import (
    AGENT_CA_HELP,
    AGENT_FILE_HELP,
    AgentAddress,
    AgentRejected,
    AgentUnavailable,
    authorization_of_job,
)
from iceberg_export.jobs.coverage import LogBounds, beyond, gaps, not_in_table, overlaps
from iceberg_export.jobs.examine import FileReport, FileTask, TableFacts, examine
from iceberg_export.jobs.findings import MISSING_SECTION, NOT_THERE, TableFinding, some
from iceberg_export.jobs.listing import TableListing, list_table
from iceberg_export.jobs.log_index import CannotVerify, LogIndex, ask_index, check_agent
from iceberg_export.jobs.report import EXIT_FAILED, TableReport, as_json, as_text, exit_status
from iceberg_export.jobs.session import StartSpark, spark_when_needed
from iceberg_export.jobs.summaries import snapshot_records, wrong_counts
from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.options import OptionError
from iceberg_export.tail.manifest import NO_KEY, NO_ROWS
from protocol.limits import VERIFY_ATTEMPTS_MAX, VERIFY_TASK_BYTES_TARGET, VERIFY_TASK_FILES_MAX
from storage.object_store import ObjectMissing, StoreError

if TYPE_CHECKING:
    from pyspark import Broadcast

TASKS_A_CORE = 4
"""The tasks of each core between two lines of progress."""
PAUSE_SECONDS = 1.0
NOT_FOUND = 404


class Verification:
    """A verification of the tables of one bucket."""

    def __init__(self, start_spark: StartSpark, store_url: str, *, agent: AgentAddress | None) -> None:
        self._start_spark = start_spark
        self._store_url = store_url
        self._agent = agent
        self._lake = SparkLake(open_bucket(store_url, {}))

    def topics(self, names: Sequence[str]) -> list[str]:
        """The topics in `names`, or all. Raises `CannotVerify`, `StoreError`, `OptionError`, `AgentUnavailable` and
        `AgentRejected`."""
        manifest = self._lake.manifest()
        all_names = sorted(topic.name for topic in manifest.topics)
        if unknown := sorted(set(names) - set(all_names)):
            raise CannotVerify(
                f"there is no topic {', '.join(unknown)} in {self._store_url}: see penstock topics list; a topic that "
                "was created within the last seconds is not in the tail manifest yet"
            )
        if self._agent is not None:
            check_agent(self._agent, manifest.cluster_id)
        return list(dict.fromkeys(names)) if names else all_names

    def table(self, name: str) -> TableReport:
        """The report of a table, also where an error prevents its verification."""
        try:
            return self._confirmed(name)
        except (CannotVerify, AgentUnavailable, AgentRejected, OptionError, StoreError) as error:
            return TableReport(topic=name, problem=str(error))

    def _confirmed(self, name: str) -> TableReport:
        """The report of a table at a ledger position whose missing objects are still needed at a later one.

        An object that only the older position needs was replaced and deleted while the verification ran.
        """
        report, missing = TableReport(topic=name), set[str]()
        for _ in range(VERIFY_ATTEMPTS_MAX):
            index = self._index(name)
            if index is None:
                return TableReport(topic=name, not_checked=["the topic was deleted meanwhile"])
            listing = list_table(self._lake.bucket, index.metadata_key)
            if missing and missing <= listing.named:
                return report
            report, missing = self._check(name, index, listing)
            if not missing:
                return report
            _say(f"{name}: objects are missing; checking whether newer ones have replaced them")
            self._lake.bucket.pause(PAUSE_SECONDS)
        raise CannotVerify(
            f"in each of {VERIFY_ATTEMPTS_MAX} attempts, objects were replaced and deleted before they were read: "
            "verify when less is merged, with more executors, or with a longer gc-min-age-s"
        )

    def _index(self, name: str) -> LogIndex | None:
        """The topic's index, with the table's metadata at the same position; None where the topic is deleted."""
        if self._agent is not None:
            try:
                return ask_index(name, self._agent)
            except AgentRejected as error:
                if error.status == NOT_FOUND:
                    return None
                raise
        topic = self._lake.manifest().topic(name)
        if topic is None:
            return None
        log = {
            number: LogBounds(partition.log_start, partition.archived_end)
            for number, partition in enumerate(topic.partitions)
        }
        metadata_key = NO_KEY if topic.metadata_key == NO_ROWS else topic.metadata_key
        return LogIndex(metadata_key=metadata_key, log=log, rows=None)

    def _check(self, name: str, index: LogIndex, listing: TableListing) -> tuple[TableReport, set[str]]:
        """The report, and the keys of missing objects, which may have been replaced meanwhile."""
        report = TableReport(topic=name, findings=list(some(listing.findings)))
        commits, not_counted = snapshot_records(listing.snapshots, index.log) if index.rows is None else ([], [])
        facts = TableFacts(
            log_starts=index.log_starts(), counted=tuple(chain.from_iterable(commit.spans for commit in commits))
        )
        tasks = [FileTask(file=file, index=index.rows_of(file.key)) for file in listing.files]
        done = list(self._read(name, tasks, facts))
        for file in done:
            report.files += 1
            report.rows += file.row_count
            report.dropped += file.dropped_count
            report.bytes += file.byte_count
            report.findings += file.findings
            report.problem = report.problem or file.problem
        report.partitions = len({span.partition for file in done for span in file.hulls})
        missing = listing.missing | {file.key for file in done if file.is_missing}
        hulls = {file.key: file.hulls for file in done}
        report.findings += some(overlaps(hulls))
        if index.rows is not None:
            report.findings += some(gaps(index.rows, index.log))
            if listing.findings:
                report.not_checked.append("whether the table has each file that the log reads: its metadata is damaged")
            else:
                report.findings += some(not_in_table(index.rows, hulls.keys()))
        else:
            report.findings += some(beyond(hulls, index.log))
            if listing.findings or missing or report.problem:
                report.not_checked.append("the count of records: some objects of the table could not be read")
            else:
                report.findings += some(wrong_counts(commits, _summed(done, facts)))
        report.not_checked += not_counted
        return report, missing

    def _read(self, topic: str, tasks: Sequence[FileTask], facts: TableFacts) -> Iterator[FileReport]:
        """The report of each file, in the order in which the executors finish."""
        groups = list(grouped(tasks))
        context = self._start_spark()
        work = partial(_examine_all, self._store_url, context.broadcast(facts))
        wave = max(1, context.defaultParallelism) * TASKS_A_CORE
        files = read_bytes = 0
        for first in range(0, len(groups), wave):
            some_groups = groups[first : first + wave]
            for report in context.parallelize(some_groups, len(some_groups)).flatMap(work).collect():
                files, read_bytes = files + 1, read_bytes + report.byte_count
                yield report
            _say(f"{topic}: {files:,} of {len(tasks):,} files, {read_bytes:,} bytes")


def _summed(done: Sequence[FileReport], facts: TableFacts) -> list[int]:
    """The count of rows in each span of `TableFacts.counted`, over all files."""
    counts: Counter[int] = Counter()
    for file in done:
        counts.update(file.counts)
    return [counts[number] for number in range(len(facts.counted))]


def grouped(tasks: Sequence[FileTask]) -> Iterator[list[FileTask]]:
    """The tasks in groups, one for each Spark task: neighbours of at most `VERIFY_TASK_BYTES_TARGET` together."""
    group: list[FileTask] = []
    group_bytes = 0
    for task in tasks:
        size = task.file.object_bytes
        if group and (group_bytes + size > VERIFY_TASK_BYTES_TARGET or len(group) == VERIFY_TASK_FILES_MAX):
            yield group
            group, group_bytes = [], 0
        group.append(task)
        group_bytes += size
    if group:
        yield group


# On executors.


def _examine_all(store_url: str, facts: "Broadcast[TableFacts]", tasks: Sequence[FileTask]) -> Iterator[FileReport]:
    bucket = open_bucket(store_url, {})
    for task in tasks:
        key = task.file.key
        try:
            data = bucket.get(key)
        except ObjectMissing:
            yield FileReport(
                key=key, findings=(TableFinding(file=key, what=NOT_THERE, do=MISSING_SECTION),), is_missing=True
            )
        except StoreError as error:
            yield FileReport(key=key, problem=f"{key} could not be read: {error}")
        else:
            yield examine(data, task, facts.value)


# The job.


def _say(line: str) -> None:
    """Write a line of progress, or of an error, to the standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The job; returns its exit status."""
    parser = argparse.ArgumentParser(prog="verify", description="Verify tables against the log.")
    parser.add_argument("store", metavar="URL", help="the bucket's URL, as in the agents' --store")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics to verify; default: all")
    parser.add_argument("--agent", default="", metavar="HOST:PORT", help="an agent's HTTP address, for the log's index")
    parser.add_argument("--token-file", default="", metavar="FILE", help=AGENT_FILE_HELP)
    parser.add_argument("--ca", default="", metavar="FILE", help=AGENT_CA_HELP)
    parser.add_argument("--json", action="store_true", help="one JSON document, for programs")
    options = parser.parse_args(arguments)
    try:
        agent = (
            AgentAddress(options.agent, authorization_of_job(options.token_file), options.ca) if options.agent else None
        )
        with spark_when_needed("penstock lake verify") as start_spark:
            verification = Verification(start_spark, options.store, agent=agent)
            reports = [verification.table(topic) for topic in verification.topics(options.topics)]
    except (CannotVerify, AgentUnavailable, AgentRejected, OptionError, StoreError) as error:
        _say(f"not verified: {error}")
        return EXIT_FAILED
    except Exception:  # an error of Spark, or a bug; Python's exit status 1 would mean findings
        traceback.print_exc()
        _say("not verified: see above")
        return EXIT_FAILED
    sys.stdout.write((as_json(reports) if options.json else as_text(reports)) + "\n")
    return exit_status(reports)


if __name__ == "__main__":
    raise SystemExit(main())
