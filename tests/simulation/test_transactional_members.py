"""Members of groups that commit in transactions (KIP-447): output and offsets belong together, whatever dies.

They stand still for longer than their sessions, under both protocols, and their agents die. That a world in which it
were otherwise is found out, `tests.simulation.mutations.transactional_members` proves.
"""

import random
from dataclasses import replace

import pytest

from tests.simulation.faults.fault_names import FaultName
from tests.simulation.plan import Fate, GroupKind, GroupPlan, Plan, TransactionPlan, draw
from tests.simulation.scripted_plans import producer_of
from tests.simulation.seeds import assert_sound
from tests.simulation.world import run


def plan_of(seed: int, kind: GroupKind, version: int) -> Plan:
    """Restless members, whose agents die; all else is calm."""
    group = GroupPlan(
        kind=kind,
        members=2,
        static_members=0,
        session_ms=2_000,
        rebalance_ms=1_000,
        heartbeat_s=0.3,
        commit_chance=0.0,
        fates=(Fate.PAUSE,),
        fate_s=3.0,
        producer=producer_of(version, is_flow=True, pause_s=0.5, rests_chance=0.6),
    )
    transactions = TransactionPlan(producers=(), placements=(False, True), readers=1, is_shared=False)
    plain = replace(draw(random.Random(seed)), agents=3, ledger_loss=None, faults=(FaultName.CRASH,), seconds=20.0)
    plain = replace(plain, retention_ms=-1, retention_bytes=-1, deleters=0, producers=1, has_topic_churn=False)
    return replace(plain, groups=(group,), transactions=transactions, has_growth=False, producer_pause_s=0.8)


@pytest.mark.parametrize(
    ("seed", "kind", "version"),
    [(13, GroupKind.EAGER, 1), (10, GroupKind.COOPERATIVE, 2), (2, GroupKind.CONSUMER, 2)],
)
def test_s13_who_was_left_behind_by_its_group_commits_nothing(seed: int, kind: GroupKind, version: int) -> None:
    """Each input is consumed by one committed transaction, also where a member wakes up inside of one."""
    verdict = run(seed, plan_of(seed, kind, version))
    assert_sound(verdict)
    assert verdict.counts["committed"] > 5
    assert "refused by group" in verdict.counts
