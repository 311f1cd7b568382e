"""Rewrites a topic's archived files: merges small ones, or adds typed columns to files that have none.

    spark-submit --py-files penstock-spark.zip rewrite.py backfill s3://bucket/prefix orders --agent 127.0.0.1:9644

where rewrite.py is: from iceberg_export.jobs.rewrite import main; raise SystemExit(main())

An agent plans. Executors read and write in the bucket, as agents do for their own merges. The agent checks each written
file, and commits it. So nothing is lost where a job dies or loses a race: the garbage collector deletes files that were
not committed. A rejected rewrite is planned again.

Exit status: 0 where all files are rewritten, 1 where some are left unchanged, 2 where the job did not end.
"""

import argparse
import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from iceberg_export.compaction.rewrites import (
    ColumnsPlan,
    Purpose,
    RewritePlan,
    RewriteTask,
    Rewritten,
    decode_plan,
    encode_rewritten,
)
from iceberg_export.jobs.agents import (
    AGENT_CA_HELP,
    AGENT_FILE_HELP,
    AgentAddress,
    AgentRejected,
    AgentUnavailable,
    authorization_of_job,
)
from iceberg_export.jobs.session import StartSpark, spark_when_needed
from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.options import OptionError
from protocol.limits import REWRITE_PLAN_ATTEMPTS_MAX
from storage.embedded.local_store import LocalStore
from storage.object_store import ObjectExists, ObjectMissing, ObjectStore, StoreError

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

    from iceberg_export.rows.columns import RecordRows
    from iceberg_export.rows.kafka_rows import BatchRows
    from iceberg_export.typed.file_columns import FileColumns

CONFLICT = 409
FAILED = 2
FILE_SCHEME = "file://"


class RewriteSchemasDeleted(Exception):
    """Schemas of the file's records were deleted permanently, so a rewrite would lose its typed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of a task on an executor: the written file, or the reason why there is none."""

    keys: tuple[str, ...]
    """The files that the task read."""
    byte_count: int
    rewritten: Rewritten | None = None
    problem: str = ""
    is_final: bool = False
    """True where another attempt would fail, too."""


@dataclass(slots=True, kw_only=True)
class Summary:
    """The totals of a run."""

    files_before: int = 0
    files_after: int = 0
    byte_count: int = 0
    problems: int = 0

    def count(self, done: TaskResult) -> None:
        """Add a file that the agent committed."""
        self.files_before += len(done.keys)
        self.files_after += 1
        self.byte_count += done.byte_count

    def line(self) -> str:
        """The totals as a line of text."""
        if not self.files_before and not self.problems:
            return "there was nothing to do"
        return (
            f"{self.files_before:,} files ({self.byte_count:,} bytes) became {self.files_after:,}; "
            f"{self.problems:,} rewrites failed, and their files are unchanged"
        )


def rewrite(start_spark: StartSpark, store_url: str, agent: AgentAddress, topic: str, purpose: Purpose) -> Summary:
    """Rewrite files until the agent plans none. Raises `AgentUnavailable`, `AgentRejected`."""
    path = f"/api/lake/{quote(topic, safe='')}/rewrites"
    failed_keys: set[tuple[str, ...]] = set()
    summary = Summary()
    failed_plans, behind = 0, ""
    while failed_plans < REWRITE_PLAN_ATTEMPTS_MAX:
        try:
            plan = decode_plan(agent.get(f"{path}?purpose={purpose}&behind={quote(behind, safe='')}"))
        except AgentRejected as error:
            if error.status != CONFLICT:
                raise
            failed_plans += 1
            continue
        tasks = [task for task in plan.tasks if task.merge.keys not in failed_keys]
        if not tasks:
            last = plan.tasks[-1].merge.keys[-1] if plan.tasks else behind
            if last == behind:
                return summary
            # All rewrites of this plan failed for good. A plan is bounded, so there may be more files after these.
            behind = last
            continue
        # Counted as failed until a wave makes progress: then the count starts again.
        failed_plans += 1
        for wave in _waves(start_spark(), store_url, plan, tasks):
            has_progress = False
            for done in wave:
                if _commit(agent, path, done):
                    has_progress = True
                    summary.count(done)
                elif done.is_final:
                    has_progress = True
                    failed_keys.add(done.keys)
                    summary.problems += 1
            _say(f"{topic}: {summary.files_before:,} files rewritten, {summary.byte_count:,} bytes")
            if not has_progress:
                break  # the table has changed since this plan: the agent would reject its other files, too
            failed_plans = 0
    summary.problems += 1
    _say(f"{topic}: {failed_plans} plans in a row failed, because the table changes meanwhile: run the job again later")
    return summary


def _waves(
    context: "SparkContext", store_url: str, plan: RewritePlan, tasks: Sequence[RewriteTask]
) -> Iterator[Sequence[TaskResult]]:
    """The results of the tasks, as many at a time as there are cores.

    A wave is committed before the next one begins, because the plan's typed columns become outdated.
    """
    columns = context.broadcast(plan.columns)
    wave = max(1, context.defaultParallelism)
    for first in range(0, len(tasks), wave):
        group = tasks[first : first + wave]
        yield context.parallelize(group, len(group)).map(partial(_rewrite_one, store_url, columns)).collect()


def _commit(agent: AgentAddress, path: str, done: TaskResult) -> bool:
    """True where the agent committed the file. Raises `AgentUnavailable`, and `AgentRejected` for an invalid file."""
    if done.rewritten is None:
        _say(f"{', '.join(done.keys)}: {done.problem}")
        return False
    try:
        agent.post(path, encode_rewritten(done.rewritten))
    except AgentRejected as error:
        if error.status != CONFLICT:
            raise
        _say(f"{done.rewritten.command.object_key}: {error}; it is planned again")
        return False
    return True


# On executors.


def _rewrite_one(store_url: str, columns: "Broadcast[ColumnsPlan | None]", task: RewriteTask) -> TaskResult:
    from iceberg_export.compaction.merge import merge

    result = partial(TaskResult, keys=task.merge.keys, byte_count=task.merge.file_bytes)
    bucket = open_bucket(store_url, {})
    plan: ColumnsPlan | None = columns.value
    try:
        merged = bucket.run(
            merge(
                task.merge,
                store=_writable(store_url, bucket.store),
                session=task.session,
                number=task.number,
                is_first_to_write=True,
                run_in_thread=asyncio.to_thread,
                columns_of=None if plan is None else partial(columns_of, plan),
            )
        )
    except RewriteSchemasDeleted as error:
        return result(problem=f"not rewritten: {error}", is_final=True)
    except ObjectMissing as error:
        return result(problem=f"deleted since the plan: {error}")
    # An earlier attempt of the same Spark task put the file. It may have been committed, or be committed yet.
    except ObjectExists:
        return result(problem="an earlier attempt of the task wrote the file already; it is planned again")
    except StoreError as error:
        return result(problem=str(error), is_final=True)
    return result(rewritten=Rewritten(command=merged.command, before=None if plan is None else plan.before))


def _writable(store_url: str, store: ObjectStore) -> ObjectStore:
    """The bucket, writable. A directory may be that of a running broker."""
    if not store_url.startswith(FILE_SCHEME):
        return store
    return LocalStore(Path(store_url.removeprefix(FILE_SCHEME)), is_writer=False, is_guest=True)


async def columns_of(plan: ColumnsPlan, parts: "Callable[[], Iterable[BatchRows | RecordRows]]") -> "FileColumns":
    """The typed columns of a file: the same as those of the agent's own merges.

    Raises `RewriteSchemasDeleted`.
    """
    return await asyncio.to_thread(_columns, plan, parts)


def _columns(plan: ColumnsPlan, parts: "Callable[[], Iterable[BatchRows | RecordRows]]") -> "FileColumns":
    from iceberg_export.typed.columns import decode
    from iceberg_export.typed.file_columns import plan_columns
    from iceberg_export.typed.readers import Ready, make_ready, readers
    from iceberg_export.typed.scan import Sides, writers_of

    sides, with_indexes = Sides(plan.sides), frozenset(plan.with_indexes)
    writers = writers_of(parts(), sides, with_indexes)
    schema_ids = {writer.schema_id for writer in writers.key | writers.value}
    deleted = sorted(each for each in schema_ids if each < plan.schema_id_next and each not in plan.schemas)
    # The existing columns of the file may have values that can no longer be decoded from its records.
    if deleted:
        raise RewriteSchemasDeleted(f"the schemas {deleted[:10]} were deleted, so typed values would be lost")
    ready: dict[int, Ready] = {}
    for schema_id in schema_ids:
        schema = plan.schemas.get(schema_id, "it is not registered")
        try:
            ready[schema_id] = schema if isinstance(schema, str) else make_ready(schema)
        except Exception as error:  # its library may raise anything; the records get the text in the column `error`
            ready[schema_id] = f"{type(error).__name__}: {error}"
    before = None if plan.before is None else decode(plan.before)
    return plan_columns(before, writers, sides, readers(ready), with_indexes, leaves_out=plan.leaves_out)


# The job.


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The job; returns its exit status."""
    parser = argparse.ArgumentParser(prog="rewrite", description="Rewrite a topic's archived files.")
    parser.add_argument("purpose", choices=[each.value for each in Purpose])
    parser.add_argument("store", metavar="URL", help="the bucket's URL, as in the agents' --store")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--agent", required=True, metavar="HOST:PORT", help="an agent's HTTP address")
    parser.add_argument("--token-file", default="", metavar="FILE", help=AGENT_FILE_HELP)
    parser.add_argument("--ca", default="", metavar="FILE", help=AGENT_CA_HELP)
    options = parser.parse_args(arguments)

    try:
        agent = AgentAddress(options.agent, authorization_of_job(options.token_file), options.ca)
        with spark_when_needed(f"penstock lake {options.purpose}") as start_spark:
            summary = rewrite(start_spark, options.store, agent, options.topic, Purpose(options.purpose))
    except (AgentUnavailable, AgentRejected, OptionError, StoreError) as error:
        _say(f"not done: {error}")
        return FAILED
    except Exception:  # an error of Spark, or a bug; Python's exit status 1 would mean that some files are unchanged
        traceback.print_exc()
        _say("the job failed, see above; committed files stay, and the next run continues after them")
        return FAILED
    sys.stdout.write(summary.line() + "\n")
    return 1 if summary.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
