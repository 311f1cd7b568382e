"""Doctor says whether a broker would believe this machine's clock, and from when on (safety rule S21)."""

from pathlib import Path

import pytest

from agent.cli.clients.running_agent import RunningAgent
from agent.cli.doctor import clock_checks
from agent.cli.doctor.clock_checks import check_clock
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.offline import LEDGER_FILE
from agent.config.addresses import HostPort
from agent.config.settings import CliCommand, Settings, load_settings
from coordinator.commands.commands import ReportTime
from coordinator.ledger.sqlite import SqliteLedger
from tests.support.agent.ledger_parts import DAY_MS, ManualClock, running_parts

DAY_S = DAY_MS / 1000
PAGE = 'docs/operations/clock.md, "The clock is wrong, or was set"'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(CliCommand.RUN, {"data-dir": str(tmp_path)}, config_path=None)


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_checks, "agent_of", lambda *_, **__: None)


async def checked(settings: Settings, monkeypatch: pytest.MonkeyPatch, *, days_off: float) -> list[DoctorFinding]:
    """What doctor finds where the ledger's last time is `days_off` days before what the clock says."""
    ledger = await SqliteLedger.open(Path(settings.data_dir) / LEDGER_FILE, new_cluster_id="c")
    async with running_parts(ledger) as parts:
        await parts.ledger.propose(ReportTime())
        await parts.ledger.close()
    await ledger.close()
    clock = ManualClock()
    clock.seconds = days_off * DAY_S
    monkeypatch.setattr(clock_checks, "SystemClock", lambda: clock)
    return [finding async for finding in check_clock(settings)]


async def test_a_clock_that_is_right_is_fine(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = await checked(settings, monkeypatch, days_off=0)
    assert (finding.verdict, finding.text) == (CheckStatus.FINE, "a broker that starts now believes it")


@pytest.mark.parametrize(
    ("days_off", "text", "remedy"),
    [
        (2, "ahead of the ledger's last time", "it is believed, at 2023-11-16 23:13:20 UTC by this clock"),
        (30, "too far ahead of what the ledger knows", "until a start with --accept-time"),
        (-2, "behind the ledger's last time", "stop, and run `penstock recover --time`"),
    ],
)
async def test_one_that_is_off_is_doubtful_and_the_remedy_says_from_when_on_it_is_believed(
    days_off: float, text: str, remedy: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = await checked(settings, monkeypatch, days_off=days_off)
    assert finding.verdict is CheckStatus.DOUBTFUL
    assert text in finding.text
    assert remedy in finding.remedy
    assert finding.remedy.endswith(f"({PAGE})")


async def test_a_broker_that_runs_is_asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def running(clock: str) -> RunningAgent:
        address = HostPort(host="127.0.0.1", port=9644)
        return RunningAgent(name=settings.name, store=settings.store_url, http=address, listeners=(), clock=clock)

    monkeypatch.setattr(clock_checks, "agent_of", lambda *_, **__: running("believed"))
    (finding,) = await checked(settings, monkeypatch, days_off=30)
    assert (finding.verdict, finding.text) == (CheckStatus.FINE, "the running broker believes it")
    monkeypatch.setattr(clock_checks, "agent_of", lambda *_, **__: running("this clock is ahead: nothing expires"))
    (finding,) = await checked(settings, monkeypatch, days_off=0)
    assert (finding.verdict, finding.text) == (CheckStatus.DOUBTFUL, "this clock is ahead")
    assert finding.remedy == f"nothing expires ({PAGE})"


async def test_nothing_is_said_where_there_is_no_ledger_yet_or_the_store_has_a_clock(tmp_path: Path) -> None:
    new = load_settings(CliCommand.RUN, {"data-dir": str(tmp_path / "new")}, config_path=None)
    bucket = load_settings(CliCommand.RUN, {"data-dir": str(tmp_path), "store": "s3://bucket"}, config_path=None)
    for settings in (new, bucket):
        assert [finding async for finding in check_clock(settings)] == []
