"""Plans of worlds with nothing but chosen producers or a script, and plans of producers."""

import random
from dataclasses import replace

from tests.simulation.faults.fault_names import FaultName
from tests.simulation.plan import Plan, ProducerPlan, TransactionPlan, draw

SEED = 8
"""Of the world that scripts change."""


def plan_of(seed: int, *producers: ProducerPlan, placements: tuple[bool, ...] = (False, True)) -> Plan:
    """A world with these transactional producers, and without faults and groups."""
    transactions = TransactionPlan(producers=producers, placements=placements, readers=1, is_shared=True)
    plain = replace(draw(random.Random(seed)), agents=3, ledger_loss=None, groups=(), faults=(), seconds=15.0)
    plain = replace(plain, retention_ms=-1, retention_bytes=-1, deleters=0, archive_interval_s=2, producers=1)
    return replace(plain, transactions=transactions, has_topic_churn=False, has_growth=False, producer_pause_s=0.8)


def producer_of(version: int, **others: object) -> ProducerPlan:
    """A transactional producer that is never late and never fails, but for `others`."""
    calm = ProducerPlan(
        version=version,
        is_flow=False,
        timeout_ms=8_000,
        pause_s=0.3,
        abort_chance=0.2,
        late_chance=0.0,
        rests_chance=0.2,
        fates=(),
        fate_s=2.0,
    )
    return replace(calm, **others)  # type: ignore[arg-type]


def calm_plan(**others: object) -> Plan:
    """A world with two producers and no faults, for a script; `others` replace fields."""
    plan = draw(random.Random(SEED))
    calm = replace(
        plan,
        agents=3,
        faults=(),
        groups=(),
        transactions=None,
        ledger_loss=None,
        has_topic_churn=False,
        has_growth=False,
        has_older_agents=False,
        retention_ms=-1,
        retention_bytes=-1,
        deleters=0,
        table_editors=0,
        archive_interval_s=2,
        read_cache_bytes=0,
        flush_interval_ms=50,
        producers=2,
        plain_producers=0,
        producer_pause_s=0.8,
        move_chance=0.0,
        window=1,
    )
    return replace(calm, **others)  # type: ignore[arg-type]


def embedded_plan(**others: object) -> Plan:
    """A world of one embedded broker whose ledger and intake are in a journal, on a disk with faults."""
    faults = (FaultName.CRASH, FaultName.RESTART, FaultName.POWER_CUT, FaultName.DISK_FAILING, FaultName.CLIENT_CUT)
    embedded = calm_plan(
        agents=1,
        is_embedded=True,
        is_store_cheap=True,
        choice_max=1,
        faults=faults,
        fault_interval_s=0.5,
        seconds=30.0,
        flush_interval_ms=5,
        producer_pause_s=0.1,
        window=3,
        snapshot_entries=15,
        gc_min_age_s=5,
    )
    return replace(embedded, **others)  # type: ignore[arg-type]
