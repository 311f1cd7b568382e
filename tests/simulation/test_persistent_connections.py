"""V1 clients that keep connections while others come and go, by scripts (safety rule S7).

Rule: what one leaves is younger than what it goes back to, so when a connection began tells nothing of which one its
client left; another leaves a request that comes in its next transaction. Worlds that are drawn hardly ever come to
this, so it is written down, and the rules that it is about are switched off here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.apply import pending_offsets as apply_pending_offsets
from coordinator.apply import transactions as apply_transactions
from coordinator.commands.transaction import ConnectionEpoch
from coordinator.state.state import ClusterState
from coordinator.state.transactions import AppliedConnectionEpoch
from protocol.types import SessionId
from tests.simulation.connection_scenes import GROUP, INPUT, OffsetScript, Script
from tests.simulation.mutations.patches import patched
from tests.simulation.scripted_plans import plan_of
from tests.simulation.seeds import assert_sound
from tests.simulation.world import Verdict, run

SEED = 13


@contextmanager
def connections_rank_by_when_they_began() -> Iterator[None]:
    """Not by when they acted last: one that was opened since, and left, ranks higher."""

    def applied(
        state: ClusterState, session_id: SessionId, epoch: ConnectionEpoch | None
    ) -> AppliedConnectionEpoch | None:
        return None if epoch is None else AppliedConnectionEpoch(epoch.position, session_id, epoch.serial)

    with patched(apply_transactions, "applied_connection_epoch", applied):
        yield


@contextmanager
def stamps_of_offset_commits_are_not_compared() -> Iterator[None]:
    """A TxnOffsetCommit counts whenever it comes, in whichever transaction is open by then."""
    with patched(apply_pending_offsets, "_is_stale", lambda held, session_id, command: False):
        yield


def verdict_of_script(script: type[Script] = Script) -> Verdict:
    return run(SEED, plan_of(SEED, placements=(False,)), lambda world: script(world).run())


def test_s7_a_late_request_on_the_younger_connection_that_was_left_decides_nothing() -> None:
    verdict = verdict_of_script()
    assert_sound(verdict)
    assert verdict.counts["stale"] == 1
    assert verdict.counts["committed"] == 1


def test_s7_were_connections_ranked_by_when_they_began_it_would_end_the_next_transaction() -> None:
    with connections_rank_by_when_they_began():
        verdict = verdict_of_script()
    assert "nobody asked for that (S7)" in verdict.violations[0]


def test_s7_a_late_commit_of_offsets_on_a_connection_that_was_left_moves_nothing() -> None:
    verdict = verdict_of_script(OffsetScript)
    assert_sound(verdict)
    assert verdict.counts["stale"] == 1
    assert verdict.counts["committed"] == 2


def test_s7_were_its_stamp_not_compared_the_group_would_go_back_in_the_next_transaction() -> None:
    with stamps_of_offset_commits_are_not_compared():
        verdict = verdict_of_script(OffsetScript)
    assert f"commits 1 of {INPUT} for {GROUP} after 2 (S7)" in verdict.violations[0]
