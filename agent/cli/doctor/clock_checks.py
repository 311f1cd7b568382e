"""The check of the clock by `penstock doctor`, where the store has no clock of its own (safety rule S21).

The verdict is that of an agent that runs with these settings, else one by the ledger's last time, read from a copy. The
messages are those that an agent logs.
"""

from collections.abc import AsyncIterator
from pathlib import Path

from agent.cli.clients.running_agent import AgentHidden, agent_of
from agent.cli.clients.security import ClientSecurity
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.failure import CommandFailed
from agent.cli.offline import LEDGER_FILE, read_state
from agent.config.addresses import FileUrl, JournalUrl, SqliteUrl, read_ledger_url, read_store_url
from agent.config.settings import Settings
from agent.ledger.clock_check import REMEDY, verdict_text
from agent.ledger.clock_trust import ClockTrust
from agent.runtime.clock import SystemClock
from storage.embedded.journal.opening import JOURNAL_FOLDER


async def check_clock(settings: Settings, security: ClientSecurity | None = None) -> AsyncIterator[DoctorFinding]:
    """The finding; none for a store with a clock of its own, and none where there is no ledger yet.

    `security`: how a running agent is asked, if not without a user.
    """
    ledger, store = read_ledger_url(settings.ledger_url), read_store_url(settings.store_url)
    if not isinstance(store, FileUrl) or not isinstance(ledger, SqliteUrl | JournalUrl):
        return
    try:
        running = agent_of(settings, security)
    except AgentHidden:  # the check of ports reports it; the ledger's time is judged instead
        running = None
    if running is not None and running.is_of(settings):
        text = "" if running.clock == "believed" else running.clock
        yield _finding(text or "the running broker believes it", is_believed=not text)
        return
    file = Path(ledger.path)
    if file.name not in (LEDGER_FILE, JOURNAL_FOLDER):
        return
    clock = SystemClock()
    try:
        state = await read_state(file.parent, is_durable=settings.is_durable)
    except CommandFailed:  # there is no ledger yet, or another check reports its fault
        return
    trust = ClockTrust(ledger_ms=lambda: state.time_ms, is_accepted=settings.is_time_accepted)
    now_ms = clock.now_ms()
    verdict = trust.judge(now_ms, clock.uptime_s())
    text = "a broker that starts now believes it" if verdict.is_believed else verdict_text(verdict, now_ms)
    yield _finding(text, is_believed=verdict.is_believed)


def _finding(text: str, *, is_believed: bool) -> DoctorFinding:
    if is_believed:
        return DoctorFinding(name="clock", verdict=CheckStatus.FINE, text=text)
    text, _, remedy = text.partition(": ")
    return DoctorFinding(name="clock", verdict=CheckStatus.DOUBTFUL, text=text, remedy=f"{remedy} ({REMEDY})")
