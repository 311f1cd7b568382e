"""The parts of an agent that most others need, made once and handed on to their constructors.

A part with few needs takes them one by one.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from protocol.types import Milliseconds
from storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The surroundings of one agent, real ones or a simulation's."""

    ledger: LedgerClient
    store: ObjectStore
    clock: Clock
    ids: Ids
    metrics: Metrics
    broker_configs: Mapping[str, str]
    """The configs that are set, by Kafka's names; they change while the agent runs."""
    proposed_time: Callable[[], Milliseconds | None]
    """The wall clock's time; None while this machine's clock is not trusted (safety rules S2, S21)."""
    is_authorizer_enabled: bool = False
    """Whether rights hold: then a topic's table shows no schema of other topics' subjects."""
    is_bucket_ours: Callable[[], Awaitable[bool]]
    """Whether the bucket names this ledger: nothing is deleted from another one (safety rule S9)."""
