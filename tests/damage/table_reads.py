"""Hundreds of flips on one table, read after each without an agent: a read takes milliseconds, a life seconds."""

import random
from collections.abc import Collection
from pathlib import Path

from tests.damage import world
from tests.damage.damages import Kind, Mode, flip, targets_of_topic
from tests.damage.lives import WHOLE, Plan, Tally
from tests.damage.table_rows import fault_of_table

OF_TABLES = (Kind.METADATA, Kind.MANIFEST_LIST, Kind.MANIFEST, Kind.PARQUET, Kind.FOOTER)
FLIPS_FACTOR = 20
"""Of each kind so many times more flips than in an agent's life."""


def sweep_tables(folder: Path, plan: Plan, random_: random.Random, tally: Tally, kinds: Collection[Kind]) -> None:
    """Flip bits of what a table consists of, one at a time, and read it after each."""
    chosen = [kind for kind in OF_TABLES if kind in kinds]
    if not chosen:
        return
    data, topic = folder / "tables", WHOLE[0]
    world.build(data, folder, archived=[topic], waiting=WHOLE[1:])
    for kind in chosen:
        target = targets_of_topic(data, kind, topic, b"")
        whole = (data / target.path).read_bytes()
        for _ in range(plan.flips * FLIPS_FACTOR):
            damage = flip(data, target, random_)
            tally.tried[kind, Mode.FLIP] += 1
            is_refused, fault = fault_of_table(data, topic)
            tally.refused[kind, Mode.FLIP] += is_refused
            if fault:
                tally.fail([damage], fault)
            (data / target.path).write_bytes(whole)
        assert fault_of_table(data, topic) == (False, ""), "it is as it was"
