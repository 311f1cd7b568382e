"""What is said where the state cannot be loaded."""

import pytest

from agent.state_loading import load
from coordinator.log import LedgerCorrupt
from coordinator.memory_log import MemoryLedger, MemoryLedgerCore
from storage.memory_store import MemoryStore
from storage.refs import SNAPSHOT_PREFIX
from tests.made_commands import create
from tests.unit.agent.ledger_parts import running_parts
from tests.unit.agent.recovery_parts import snapshot


async def test_a_damaged_snapshot_is_named_with_what_can_be_done() -> None:
    store, ledger = MemoryStore(), MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    async with running_parts(ledger, store=store) as parts:
        await parts.writer.submit(create())
        await snapshot(parts)
    (key,) = [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]
    whole = await store.get(key)
    for damaged in (whole[:-9], b"\x05" + whole[1:], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
        await store.put(key, (damaged,))
        with pytest.raises(LedgerCorrupt, match=f"{key}.*penstock recover"):
            await load(ledger, store)
    await store.put(key, (whole,))
    assert (await load(ledger, store)).follower.state.topic_ids.keys() == {"t"}
