"""An agent describes itself once in each session, where the rules in force know such entries."""

from agent.maintenance.agent_description import AgentDescription
from agent.runtime.version import VERSION
from coordinator.commands.rules import RULES_AGENTS, RULES_NEWEST, RULES_QUOTA_USE
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.state import NO_TIME, SessionState
from tests.support.agent.ledger_parts import BEGAN_MS, Parts, running_parts
from tests.support.commands.commands import start

URL = "http://a:9644"


def description(parts: Parts, http_url: str | None = URL) -> AgentDescription:
    return AgentDescription(parts.context(), http_url=http_url)


def session_of(parts: Parts) -> SessionState:
    return parts.ledger.state.sessions[parts.ledger.session]


async def test_the_state_has_it_and_a_second_call_writes_nothing() -> None:
    async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
        described = description(parts)
        parts.clock.seconds = 7.0
        await described.describe()
        session = session_of(parts)
        assert (session.http_url, session.version, session.started_ms) == (URL, VERSION, BEGAN_MS)
        position = parts.ledger.state.position
        await described.describe()
        assert parts.ledger.state.position == position


async def test_without_an_address_and_a_believed_clock_the_version_is_known() -> None:
    async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
        parts.is_clock_checked = False
        await description(parts, None).describe()
        session = session_of(parts)
        assert (session.http_url, session.version, session.started_ms) == (None, VERSION, NO_TIME)


async def test_s3_under_older_rules_it_waits() -> None:
    core = MemoryLedgerCore()
    async with running_parts(MemoryLedger(core), start(rules=RULES_QUOTA_USE)) as older:
        await description(older).describe()
        assert session_of(older).version is None
        assert older.ledger.state.rules_version == RULES_QUOTA_USE < RULES_AGENTS


async def test_before_the_session_is_known_there_is_nothing_to_describe() -> None:
    async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
        parts.ledger.state.sessions.clear()
        await description(parts).describe()
        assert parts.ledger.state.sessions == {}
