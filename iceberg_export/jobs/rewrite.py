"""Rewrites a topic's archived files: small ones into large ones, or those without typed columns into some with them.

    spark-submit --py-files penstock-spark.zip rewrite.py backfill s3://bucket/prefix orders --agent 127.0.0.1:9644

where rewrite.py is: from iceberg_export.jobs.rewrite import main; raise SystemExit(main())

Rule: an agent plans, executors read and write in the bucket as agents do for their own merges, and the agent looks at
each file that was written, and makes it true. So nothing is lost where a job dies, or comes second: what it wrote and
nobody took is deleted by the cleaner. What of a plan was overtaken is planned again.

Exit status: 0 where all is done, 1 where something is left as it was, 2 where it could not be done to its end.
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
from iceberg_export.jobs.agents import AgentAddress, AgentRejected, AgentUnavailable, read_token
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
    """Records were written with schemas that were deleted for good since: typed values would be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of a task on an executor: what it wrote, or why it did not. `is_final`: it would not the next time
    either."""

    keys: tuple[str, ...]
    byte_count: int
    rewritten: Rewritten | None = None
    problem: str = ""
    is_final: bool = False


@dataclass(slots=True, kw_only=True)
class Summary:
    """Of a whole run."""

    files_before: int = 0
    files_after: int = 0
    byte_count: int = 0
    problems: int = 0

    def count(self, done: TaskResult) -> None:
        """A file that came true."""
        self.files_before += len(done.keys)
        self.files_after += 1
        self.byte_count += done.byte_count

    def prepared(self) -> str:
        if not self.files_before and not self.problems:
            return "there was nothing to do"
        return (
            f"{self.files_before:,} files ({self.byte_count:,} bytes) became {self.files_after:,}; "
            f"{self.problems:,} merges were left as they were"
        )


def rewrite(start_spark: StartSpark, store_url: str, agent: AgentAddress, topic: str, purpose: Purpose) -> Summary:
    """Until there is nothing to rewrite. Raises `AgentUnavailable`, `AgentRejected`."""
    path = f"/api/lake/{quote(topic, safe='')}/rewrites"
    left: set[tuple[str, ...]] = set()
    summary = Summary()
    in_vain, behind = 0, ""
    while in_vain < REWRITE_PLAN_ATTEMPTS_MAX:
        try:
            plan = decode_plan(agent.get(f"{path}?purpose={purpose}&behind={quote(behind, safe='')}"))
        except AgentRejected as error:
            if error.status != CONFLICT:
                raise
            in_vain += 1
            continue
        tasks = [task for task in plan.tasks if task.merge.keys not in left]
        if not tasks:
            last = plan.tasks[-1].merge.keys[-1] if plan.tasks else behind
            if last == behind:
                return summary
            behind = last  # all of these are left as they are, and a plan is bounded: there may be more
            continue
        in_vain += 1
        for wave in _written(start_spark(), store_url, plan, tasks):
            is_in_vain = True
            for done in wave:
                if _make_true(agent, path, done):
                    is_in_vain = False
                    summary.count(done)
                elif done.is_final:
                    is_in_vain = False
                    left.add(done.keys)
                    summary.problems += 1
            _say(f"{topic}: {summary.files_before:,} files rewritten, {summary.byte_count:,} bytes")
            if is_in_vain:
                break  # the table moved on from this plan: what else would be written by it were in vain, too
            in_vain = 0
    summary.problems += 1
    _say(f"{topic}: planned {in_vain} times in vain, for others change it: run it again later")
    return summary


def _written(
    context: "SparkContext", store_url: str, plan: RewritePlan, tasks: Sequence[RewriteTask]
) -> Iterator[Sequence[TaskResult]]:
    """As many at a time as there are cores; a plan's typed columns are those of its moment."""
    columns = context.broadcast(plan.columns)
    wave = max(1, context.defaultParallelism)
    for first in range(0, len(tasks), wave):
        some = tasks[first : first + wave]
        yield context.parallelize(some, len(some)).map(partial(_rewrite_one, store_url, columns)).collect()


def _make_true(agent: AgentAddress, path: str, done: TaskResult) -> bool:
    """Whether the agent took it. Raises `AgentUnavailable`, and `AgentRejected` where it is wrong altogether."""
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

    prepared = partial(TaskResult, keys=task.merge.keys, byte_count=task.merge.file_bytes)
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
        return prepared(problem=f"stays as it is: {error}", is_final=True)
    except ObjectMissing as error:
        return prepared(problem=f"went meanwhile: {error}")
    except ObjectExists:  # Spark tried the task before, and what that wrote may come true, or be true by now
        return prepared(problem="it was written already, by a try that Spark gave up; it is planned again")
    except StoreError as error:
        return prepared(problem=str(error), is_final=True)
    return prepared(rewritten=Rewritten(command=merged.command, before=None if plan is None else plan.before))


def _writable(store_url: str, store: ObjectStore) -> ObjectStore:
    """The bucket to read data files from, and to put one into; a directory may be a running broker's."""
    if not store_url.startswith(FILE_SCHEME):
        return store
    return LocalStore(Path(store_url.removeprefix(FILE_SCHEME)), is_writer=False, is_guest=True)


async def columns_of(plan: ColumnsPlan, parts: "Callable[[], Iterable[BatchRows | RecordRows]]") -> "FileColumns":
    """The typed columns of a file, as the agent would give it."""
    return await asyncio.to_thread(_columns, plan, parts)


def _columns(plan: ColumnsPlan, parts: "Callable[[], Iterable[BatchRows | RecordRows]]") -> "FileColumns":
    from iceberg_export.typed.file_columns import plan_columns
    from iceberg_export.typed.readers import Ready, make_ready, readers
    from iceberg_export.typed.scan import Sides, writers_of
    from iceberg_export.typed.union import decode

    sides, with_indexes = Sides(plan.sides), frozenset(plan.with_indexes)
    seen = writers_of(parts(), sides, with_indexes)
    schema_ids = {writer.schema_id for writer in seen.key | seen.value}
    gone = sorted(each for each in schema_ids if each < plan.schema_id_next and each not in plan.schemas)
    if gone:
        raise RewriteSchemasDeleted(f"schemas {gone[:10]} were deleted, and its values would be lost")
    ready: dict[int, Ready] = {}
    for schema_id in schema_ids:
        schema = plan.schemas.get(schema_id, "it is not registered")
        try:
            ready[schema_id] = schema if isinstance(schema, str) else make_ready(schema)
        except Exception as error:  # whatever its library raises: its records get it as their error
            ready[schema_id] = f"{type(error).__name__}: {error}"
    before = None if plan.before is None else decode(plan.before)
    return plan_columns(before, seen, sides, readers(ready), with_indexes, leaves_out=plan.leaves_out)


# The job.


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The job; returns its exit status."""
    parser = argparse.ArgumentParser(prog="rewrite", description="Rewrite a topic's archived files.")
    parser.add_argument("purpose", choices=[each.value for each in Purpose])
    parser.add_argument("store", metavar="URL", help="of the bucket, as the agents' --store")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--agent", required=True, metavar="HOST:PORT", help="an agent's HTTP address")
    parser.add_argument("--http-token-file", default="", metavar="FILE", help="as the agents have it")
    options = parser.parse_args(arguments)

    try:
        agent = AgentAddress(options.agent, read_token(options.http_token_file))
        with spark_when_needed(f"penstock lake {options.purpose}") as start_spark:
            summary = rewrite(start_spark, options.store, agent, options.topic, Purpose(options.purpose))
    except (AgentUnavailable, AgentRejected, OptionError, StoreError) as error:
        _say(f"not done: {error}")
        return FAILED
    except Exception:  # of Spark, or a bug: Python's own status for it would mean that some files were left
        traceback.print_exc()
        _say("not done to its end: see above; what came true stays, and the job goes on behind it when it is run again")
        return FAILED
    sys.stdout.write(summary.prepared() + "\n")
    return 1 if summary.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
