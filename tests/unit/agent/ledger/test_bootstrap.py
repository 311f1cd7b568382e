"""What is said where the state cannot be loaded."""

import pytest

from agent.ledger.bootstrap import load_state
from coordinator.commands.rules import RULES_FIRST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerCorrupt, NewerRules
from storage.memory_store import MemoryStore
from storage.refs import SNAPSHOT_PREFIX
from tests.support.agent.ledger_parts import running_parts
from tests.support.agent.recovery_clusters import snapshot
from tests.support.commands.commands import create


async def test_a_damaged_snapshot_is_named_with_what_can_be_done() -> None:
    store, ledger = MemoryStore(), MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await snapshot(parts)
    (key,) = [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]
    whole = await store.get(key)
    for damaged in (whole[:-9], b"\x05" + whole[1:], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
        await store.put(key, (damaged,))
        with pytest.raises(LedgerCorrupt, match=f"{key}.*penstock recover"):
            await load_state(ledger, store)
    await store.put(key, (whole,))
    assert (await load_state(ledger, store)).follower.state.topic_ids.keys() == {"t"}


async def test_a_program_that_is_too_old_is_to_be_upgraded_and_not_to_recover() -> None:
    """A recovery by it would lose what the newer rules brought (safety rule S3)."""
    store, ledger = MemoryStore(), MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await snapshot(parts)
    with pytest.raises(NewerRules) as raised:
        await load_state(ledger, store, RULES_FIRST - 1)
    assert str(raised.value).startswith(f"rules {RULES_FIRST} are in force, this program knows 0: upgrade it (S3).")
    assert "cannot be taken back (docs/operations/upgrade.md, 'Go back')" in str(raised.value)
