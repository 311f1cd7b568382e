"""Safety rule S3 in simulated worlds: one agent of three computes another state, and stops alone; all else is right.

Its state differs silently in its first life, from a moment on. Whatever happens then, no client may notice it, no other
agent may compute otherwise, and it must be gone before a snapshot covers that moment.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from coordinator.apply import apply as apply_module
from coordinator.apply import chunks as apply_chunks
from coordinator.commands.commands import CommitChunks, Outcome
from coordinator.state.state import ClusterState
from protocol.types import ObjectId, SessionId
from tests.simulation.audit.truth import Truth
from tests.simulation.cluster.agents import Life
from tests.simulation.loop import NODE
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan, draw
from tests.simulation.world import run

SEEDS = 6
COMMITS_UNTIL_IT_DIVERGES = 10
WRONG = "agent-1.1"


def may_show(plan: Plan) -> bool:
    """Three agents, of which none dies otherwise, and snapshots that come often."""
    return plan.agents == 3 and plan.snapshot_entries < 40 and not plan.faults


@cache
def seeds() -> list[int]:
    """The first seeds whose worlds may show it. To draw so many plans takes seconds: not while tests are collected."""
    fitting = (seed for seed in range(1, 5_000) if may_show(draw(random.Random(seed))))
    return [seed for seed, _ in zip(fitting, range(SEEDS), strict=False)]


@contextmanager
def one_diverges(stopped: list[str]) -> Iterator[None]:
    """The bug, and a harness that takes its agent's end for what ought to happen."""
    commits = 0

    def commit_chunks(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
        nonlocal commits
        outcome = apply_chunks.commit_chunks(state, session_id, command)
        if str(NODE.get()) == WRONG:
            commits += 1
            if commits > COMMITS_UNTIL_IT_DIVERGES:
                state.object_id_next = ObjectId(state.object_id_next + 1)
        return outcome

    ended, check_digest = Life._ended, Truth.check_digest

    def ends(self: Life, task: "asyncio.Task[None]") -> None:
        error = None if self.is_dead or task.cancelled() else task.exception()
        told = str(error.exceptions) if isinstance(error, BaseExceptionGroup) else ""
        if str(self) == WRONG and "the state digest of this agent differs from the majority" in told:
            stopped.append(told)
            self.agent.ended(self)
            self.agent.start()
        else:
            ended(self, task)

    def check_others(self: Truth, who: str, state: ClusterState) -> None:
        if who != WRONG.partition(".")[0] or stopped:
            check_digest(self, who, state)

    with (
        patched(apply_module, "commit_chunks", commit_chunks),
        patched(Life, "_ended", ends),
        patched(Truth, "check_digest", check_others),
    ):
        yield


@pytest.mark.parametrize("number", range(SEEDS))
def test_s3_one_that_diverges_stops_alone_and_nobody_else_notices(number: int) -> None:
    stopped: list[str] = []
    with one_diverges(stopped):
        verdict = run(seeds()[number])
    assert verdict.violations == ()
    assert len(stopped) == 1
