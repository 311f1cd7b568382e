"""What becomes of a ledger that is not there: an agent makes one, whoever only looks makes nothing."""

from pathlib import Path

import pytest

from agent.config.settings import CliCommand, Settings, load_settings
from agent.ledger.open_ledger import WhereMissing, open_ledger
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from coordinator.ledger.port import LedgerMissing, LedgerUnsupported


def settings(ledger: str) -> Settings:
    return load_settings(CliCommand.AGENT, {"ledger": ledger, "store": "memory:"})


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_whoever_only_looks_makes_no_ledger(tmp_path: Path) -> None:
    places = settings(f"sqlite://{tmp_path}/data/ledger.sqlite")
    with pytest.raises(LedgerMissing, match="does not exist"):
        async with open_ledger(places, SystemClock(), SystemIds(), WhereMissing.REJECTED):
            pass
    async with open_ledger(places, SystemClock(), SystemIds(), WhereMissing.SUBSTITUTED) as ledger:
        assert (await ledger.head()).appends_count == 0
    assert not files(tmp_path)


async def test_whoever_only_looks_finds_what_an_agent_made(tmp_path: Path) -> None:
    places = settings(f"sqlite://{tmp_path}/data/ledger.sqlite")
    async with open_ledger(places, SystemClock(), SystemIds()) as ledger:
        identity = await ledger.identity()
    for where_missing in (WhereMissing.REJECTED, WhereMissing.SUBSTITUTED):
        async with open_ledger(places, SystemClock(), SystemIds(), where_missing) as ledger:
            assert await ledger.identity() == identity


async def test_a_ledger_in_a_journal_is_read_by_its_agent_alone(tmp_path: Path) -> None:
    places = settings(f"journal://{tmp_path}/journal")
    with pytest.raises(LedgerUnsupported, match="by its agent alone"):
        async with open_ledger(places, SystemClock(), SystemIds(), WhereMissing.REJECTED):
            pass
    assert not files(tmp_path)


async def test_a_ledger_in_memory_cannot_be_looked_at() -> None:
    with pytest.raises(LedgerMissing, match="in memory"):
        async with open_ledger(settings("memory:"), SystemClock(), SystemIds(), WhereMissing.REJECTED):
            pass
