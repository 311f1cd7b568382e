"""How long a job goes on, and with what, as the table moves on under it. Spark's part of it is a list here."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.commands.commands import ReplaceChunks
from iceberg_export.compaction.merge import Merge
from iceberg_export.compaction.rewrites import Purpose, RewritePlan, RewriteTask, Rewritten, encode_plan
from iceberg_export.jobs import rewrite as job
from iceberg_export.jobs.agents import AgentAddress, AgentRejected
from iceberg_export.jobs.rewrite import Summary, TaskResult
from protocol.limits import REWRITE_PLAN_ATTEMPTS_MAX
from protocol.types import ObjectNumber, SessionId, TopicId

TOPIC = TopicId(bytes(16))
PLANS_MAX = 50
"""More than any of these jobs may ask for."""


class OneByOne:
    """A `SparkContext` of one core, which does in this thread what it is given."""

    defaultParallelism = 1

    def broadcast(self, value: object) -> object:
        return SimpleNamespace(value=value)

    def parallelize(self, items: list[Any], _: int) -> Any:  # noqa: ANN401
        return SimpleNamespace(map=lambda do: SimpleNamespace(collect=lambda: [do(item) for item in items]))


class PlanningAgent(AgentAddress):
    """Plans `size` files at a time, but those that it took; `takes` says of which."""

    def __init__(self, names: str, takes: Callable[[str], bool], size: int = 9) -> None:
        super().__init__("nobody:1")
        self._names, self._takes = list(names), takes
        self._size = size
        self.plans = 0

    def get(self, path: str) -> bytes:
        asked, _, behind = path.partition("&behind=")
        assert asked == "/api/lake/orders/rewrites?purpose=rewrite"
        self.plans += 1
        assert self.plans < PLANS_MAX, "it ends"
        names = [each for each in self._names if each > behind][: self._size]
        return encode_plan(RewritePlan(tasks=tuple(map(task, names)), columns=None))

    def post(self, path: str, body: bytes) -> bytes:
        name = next(each for each in self._names if f"key-{each}".encode() in body)
        if not self._takes(name):
            raise AgentRejected(409, "overtaken")
        self._names.remove(name)
        return b""


def task(name: str) -> RewriteTask:
    merge = Merge(topic_id=TOPIC, name="orders", keys=(name,), file_bytes=1, chunks=())
    return RewriteTask(merge=merge, session=SessionId(1), number=ObjectNumber(1))


def ran(monkeypatch: pytest.MonkeyPatch, agent: PlanningAgent, *, damaged: str = "") -> tuple[Summary, list[str]]:
    """What a job comes to, and of which files it wrote another one; `damaged` are those that it cannot read."""
    written: list[str] = []

    def rewrite_one(_store: str, _columns: object, each: RewriteTask) -> TaskResult:
        (name,) = each.merge.keys
        if name in damaged:
            return TaskResult(keys=(name,), byte_count=1, problem="damaged", is_final=True)
        written.append(name)
        command = ReplaceChunks(
            topic_id=TOPIC, object_session=SessionId(1), object_key=f"key-{name}", object_bytes=1, partitions=()
        )
        return TaskResult(keys=(name,), byte_count=1, rewritten=Rewritten(command=command))

    monkeypatch.setattr(job, "_rewrite_one", rewrite_one)
    return job.rewrite(lambda: cast("Any", OneByOne()), "file:///nowhere", agent, "orders", Purpose.REWRITE), written


def test_all_is_rewritten_once(monkeypatch: pytest.MonkeyPatch) -> None:
    summary, written = ran(monkeypatch, PlanningAgent("abc", lambda _: True))
    assert written == ["a", "b", "c"]
    assert summary == Summary(files_before=3, files_after=3, byte_count=3)


def test_what_is_overtaken_time_and_again_ends_the_job_though_other_files_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = PlanningAgent("ab", lambda _: False)
    summary, written = ran(monkeypatch, agent, damaged="a")
    assert written == ["b"] * len(written)
    assert agent.plans <= REWRITE_PLAN_ATTEMPTS_MAX + 1
    assert summary == Summary(problems=2), "the damaged one, and that others change it"


def test_a_plan_that_was_overtaken_is_not_written_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = iter([True, False])
    agent = PlanningAgent("abcd", lambda name: name != "b" or not next(refusals))
    summary, written = ran(monkeypatch, agent)
    assert written == ["a", "b", "b", "c", "d"]
    assert summary == Summary(files_before=4, files_after=4, byte_count=4)


def test_what_lies_behind_a_whole_plan_of_damaged_files_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    summary, written = ran(monkeypatch, PlanningAgent("abcde", lambda _: True, size=2), damaged="abcd")
    assert written == ["e"]
    assert summary == Summary(files_before=1, files_after=1, byte_count=1, problems=4)


def test_spark_is_not_started_where_there_is_nothing_to_rewrite_or_the_agent_refuses() -> None:
    def start() -> Any:  # noqa: ANN401
        raise AssertionError("nothing is to be done")

    assert (
        job.rewrite(start, "file:///nowhere", PlanningAgent("", lambda _: True), "orders", Purpose.REWRITE) == Summary()
    )

    class Refusing(PlanningAgent):
        def get(self, path: str) -> bytes:
            raise AgentRejected(400, "set penstock.table.columns")

    with pytest.raises(AgentRejected, match=r"set penstock\.table\.columns"):
        job.rewrite(start, "file:///nowhere", Refusing("", lambda _: True), "orders", Purpose.BACKFILL)
