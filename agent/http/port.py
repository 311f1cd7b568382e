"""The interface of an agent for the HTTP port.

The applications below the port (`http_api`, `iceberg_catalog`, `registry_api`) take an `HttpAgent` and import neither
the server nor the agent. `agent.agent.Agent` implements it; tests give a small one over a state in memory.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.table_updates import TableUpdates
from agent.runtime.metrics import Metrics
from coordinator.commands.commands import Command, Outcome
from coordinator.configs.config_entries import Layers
from coordinator.ledger.port import Ledger
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, TopicId
from storage.object_store import ObjectStore


class RegistryAgent(Protocol):
    """The interface of an agent for the schema registry."""

    @property
    def state(self) -> ClusterState:
        """The current state. The agent replaces it as it applies entries: read it again after each await."""
        ...

    async def barrier(self) -> None:
        """Return once the state holds everything that was true when this was called (safety rule S4)."""
        ...

    async def propose(self, command: Command) -> Outcome:
        """Propose a command and return its outcome once it is applied.

        Raises `OutcomeUnknown`, and `TimeoutError` where the ledger does not answer in time: it may apply later.
        """
        ...


class HttpAgent(RegistryAgent, Protocol):
    """The interface of an agent for the HTTP port as a whole."""

    @property
    def is_ready(self) -> bool:
        """False before the first sync and while draining only (architecture: names that do not change)."""
        ...

    def notices(self) -> Sequence[str]:
        """The conditions that an operator must act on although the agent serves, one line each."""
        ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def store(self) -> ObjectStore: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def config_layers(self) -> Layers:
        """The agent's broker configs, which give topics their defaults."""
        ...

    def status(self) -> Mapping[str, object]:
        """Values for JSON: `name`, `version`, `cluster_id`, `node_id`, `session`, `kafka` (a list of "NAME://HOST:PORT",
        the first of which `penstock produce` and `consume` connect to) and further values for people."""
        ...

    def catalog_syncs(self) -> Sequence[Mapping[str, object]]:
        """A report for each external catalog that this agent updates: see `ExternalCatalogSync.view`."""
        ...

    def checked_time(self) -> Milliseconds | None:
        """The wall clock's time; None while the clock is not trusted (safety rule S2)."""
        ...

    async def archive(self, topic_names: Sequence[str]) -> Sequence[Mapping[str, object]]:
        """Archive these existing topics now; return a report for each once its entry is applied.

        A report holds `topic`, `records`, `bytes` and `objects` (keys). After a cancellation the pass still commits or
        is rejected as a whole.
        """
        ...

    @property
    def rewrites(self) -> LakeRewrites:
        """Plans rewrites of files, and commits the files that jobs wrote."""
        ...

    @property
    def table_edits(self) -> TableUpdates:
        """Makes the changes that clients of the catalog may make to a topic's table."""
        ...

    async def rebuild_table(self, topic_id: TopicId) -> Mapping[str, object]:
        """Rebuild a topic's table from the files of its log; return the report of `agent.lake.table_rebuild.Rebuilt`.

        Raises `NothingToRebuild`, `FileLost`, `StoreError`, `LedgerError` and `OutcomeUnknown`.
        """
        ...

    async def audit(self, *, is_repairing: bool, is_deep: bool) -> Mapping[str, object]:
        """Compare bucket, ledger and state; return the report of `agent.recovery.audit.AuditReport`.

        `is_deep` reads every stored byte.
        """
        ...
