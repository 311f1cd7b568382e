"""Ledger commands about agents: what an agent says of itself beside its session's start, and drains on request.

`StartSession` never changes, as agents of every version read it (safety rule S3). What came later stands here.
"""

from typing import ClassVar

from coordinator.commands.field_types import NaturalMilliseconds, SessionField
from coordinator.commands.forms import WireStruct
from coordinator.commands.rules import RULES_AGENTS


class DescribeAgent(WireStruct, frozen=True, kw_only=True, tag=78):
    """The description of the agent whose session proposes it; a later one replaces it."""

    SINCE: ClassVar[int] = RULES_AGENTS

    http_url: str | None
    """The URL of its HTTP port for people and other agents, without a path; None where it advertises none."""
    version: str
    """The version of its program."""
    started_ms: NaturalMilliseconds | None
    """When its process began to serve; None while its clock is not believed (safety rule S2)."""


class RequestDrain(WireStruct, frozen=True, kw_only=True, tag=79):
    """Ask the agent of a session to drain, and to go on as a spare. Rejected where no agent would be left to serve.

    The agent itself proposes `StartDrain`, once it has committed what it accepted (safety rule S8).
    """

    SINCE: ClassVar[int] = RULES_AGENTS

    session: SessionField


AgentCommand = DescribeAgent | RequestDrain
