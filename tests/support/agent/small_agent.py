"""A small cluster's state, and an agent around it, for tests of what is shown to people."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from agent.admin.config_layers import BrokerConfigs
from agent.http.services import AdminServices, StartServices
from agent.lake.archiver import Archiver, ArchiveReport
from agent.lake.external_catalogs import ExternalCatalogSync
from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.table_rebuild import Rebuilt, TableRebuild
from agent.lake.table_updates import TableUpdates
from agent.ledger.ledger_client import LedgerClient
from agent.recovery.audit import Audit
from agent.runtime.clock import SystemClock
from agent.runtime.metrics import Metrics
from agent.runtime.notices import Notice
from agent.runtime.start_waits import StartWaits
from agent.views.cluster_metrics import ClusterMetrics
from coordinator.apply.apply import apply_proposal
from coordinator.codec.codec import encode
from coordinator.commands.commands import Command, Endpoint, Outcome, Proposal, ReportTime
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Ledger, LedgerEntry
from coordinator.state.state import ClusterState, ObjectState, PartitionState, SessionState, TopicState
from iceberg_export.tables.edits import TableEdit
from protocol.types import Milliseconds, ObjectId, Offset, Position, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.object_store import ObjectToPut
from storage.refs import ObjectKind
from tests.support.commands import entries as made_entries
from tests.support.records.plain_records import Record, make_batch

TOPIC_ID = TopicId(bytes(15) + b"\x07")
SESSION = SessionId(3)
INTAKE_KEY = "intake/1/0"
PARQUET_KEY = "lake/orders-07/data/1-1.parquet"


def made_state() -> ClusterState:
    """`orders` with two partitions: one archived up to offset 10 and then 5 more records, one empty."""
    state = ClusterState.empty("cluster", 1)
    state.position = Position(12)
    first = PartitionState(log_end=Offset(15))
    first.index.append(10, 1, 4, 400, 1_000, -1)
    archived = first.index.row(0)._replace(row_group=0, row_first=0, row_count=9)
    first.index.replace(0, 1, [archived])
    first.index.append(15, 2, 12, 100, 2_000, -1)
    topic = TopicState(
        topic_id=TOPIC_ID,
        name="orders",
        configs={"cleanup.policy": "delete"},
        partitions=[first, PartitionState()],
        created_ms=Milliseconds(5),
    )
    state.topics[TOPIC_ID] = topic
    state.topic_ids["orders"] = TOPIC_ID
    state.partitions_count = 2
    state.objects = {
        ObjectId(1): ObjectState(key=PARQUET_KEY, kind=ObjectKind.PARQUET, object_bytes=500, references=1),
        ObjectId(2): ObjectState(key=INTAKE_KEY, kind=ObjectKind.INTAKE, object_bytes=200, references=1),
    }
    state.released = {"intake/1/9": Milliseconds(77)}
    state.sessions[SESSION] = SessionState(
        name="a",
        node_id=1,
        endpoints=(Endpoint(listener="IN", host="h", port=1),),
        zone=None,
        rules_version=1,
        entry_next=0,
    )
    return state


def intake_object() -> bytes:
    """An intake object with one chunk of two batches."""
    batches = make_batch([Record(offset=0, timestamp=1)]) + make_batch([Record(offset=o, timestamp=1) for o in (1, 2)])
    encoded = encode_object(SessionId(1), 0, [ChunkParts(topic_id=TOPIC_ID, partition=0, parts=[batches])])  # type: ignore[arg-type]
    return b"".join(bytes(part) for part in encoded.parts)


def rows_of(shown: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """A list of rows in what is shown."""
    rows = shown[name]
    assert isinstance(rows, list)
    return rows


class PromptClient(LedgerClient):
    """Has a made state. A barrier asks the ledger alone, and a command is applied at once."""

    def __init__(self, backend: Ledger) -> None:
        self.backend = backend
        self.before_end: Callable[[], None] = lambda: None
        """Is called before the end of each barrier."""
        self.before: Callable[[Command], None] = lambda _: None
        """Is called ahead of each command."""
        self._state = made_state()

    @property
    def state(self) -> ClusterState:
        return self._state

    async def barrier(self) -> Position:
        head = await self.backend.head()
        self.before_end()
        return head.position

    def propose(self, command: Command, stored: ObjectToPut | None = None) -> asyncio.Future[Outcome]:
        assert stored is None, "its ledger takes no objects"
        self.before(command)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        outcome.set_result(self.apply(command))
        return outcome

    def apply(self, command: Command) -> Outcome:
        session = self.state.sessions[SESSION]
        session.entry_next += 1
        payload = made_entries.encode(Proposal(time_ms=None, command=command), self.state.rules_version)
        return apply_proposal(self.state, SESSION, session.entry_next, made_entries.decode(payload))[1]


class MadeUpdates(TableUpdates):
    """Remembers what it was asked to make; raises `error` instead where there is one."""

    def __init__(self) -> None:
        self.made: list[tuple[TopicId, TableEdit]] = []
        self.error: Exception | None = None

    async def make(self, topic_id: TopicId, edit: TableEdit) -> None:
        if self.error is not None:
            raise self.error
        self.made.append((topic_id, edit))


class MadeArchiver(Archiver):
    """Remembers what it was asked to archive; raises `error` instead for `orders` where there is one."""

    def __init__(self) -> None:
        self.archived: list[TopicId] = []
        self.error: Exception | None = None

    async def archive_topic(self, topic_id: TopicId) -> ArchiveReport:
        if self.error is not None and topic_id == TOPIC_ID:
            raise self.error
        self.archived.append(topic_id)
        return ArchiveReport(topic="orders", records=15, source_bytes=500, object_keys=(PARQUET_KEY,))


class MadeRebuild(TableRebuild):
    """Says that it rebuilt the table of `orders`; raises `error` instead where there is one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def rebuild(self, topic_id: TopicId) -> Rebuilt:
        if self.error is not None:
            raise self.error
        assert topic_id == TOPIC_ID
        return Rebuilt(topic="orders", files=1, records=15, version=2, released=3)


class MadeSync(ExternalCatalogSync):
    """Of a catalog that is up to date."""

    def __init__(self) -> None:
        """Connects to nothing."""

    def view(self) -> Mapping[str, object]:
        return {"catalog": "others", "lag_s": 0.0}


class NoRewrites(LakeRewrites):
    """No test here plans a rewrite."""

    def __init__(self) -> None:
        """Has nothing to read."""


class SmallAgent:
    """The services of the HTTP port over a made state, a ledger and a store in memory, and what they are made of."""

    def __init__(self) -> None:
        self.is_ready = True
        self.status_more: dict[str, object] = {}
        self.noticed: Sequence[Notice] = ()
        self.backend = MemoryLedger()
        self.ledger = PromptClient(self.backend)
        self.store = MemoryStore()
        self.archiver = MadeArchiver()
        self.table_rebuild = MadeRebuild()
        self.table_updates = MadeUpdates()
        metrics = Metrics()
        metrics.ledger_position.set_function(lambda: self.state.position)
        cluster_metrics = ClusterMetrics(
            state=lambda: self.state, is_leader=lambda: True, now_ms=lambda: None, clock=SystemClock()
        )
        metrics.add(cluster_metrics)
        self.waits = StartWaits(SystemClock())
        self.start_services = StartServices(waits=self.waits, metrics=metrics, clock=SystemClock())
        self.services = AdminServices(
            is_ready=lambda: self.is_ready,
            not_ready_line=lambda: self.waits.line,
            notices=lambda: self.noticed,
            status=lambda: {"name": "a", "kafka": ["PLAINTEXT://127.0.0.1:9092"], **self.status_more},
            ledger=self.ledger,
            store=self.store,
            metrics=metrics,
            refresh_metrics=cluster_metrics.refresh,
            clock=SystemClock(),
            checked_time=lambda: None,
            broker_configs=BrokerConfigs({"log.retention.ms": "5"}, node_id=1, state=lambda: self.state),
            archiver=self.archiver,
            rewrites=NoRewrites(),
            table_rebuild=self.table_rebuild,
            table_updates=self.table_updates,
            catalog_syncs=[MadeSync()],
            new_audit=lambda: Audit(self.backend, self.store, grace_ms=0),
            digest_key=bytes(32),
        )

    @property
    def state(self) -> ClusterState:
        return self.ledger.state

    async def fill(self) -> None:
        session = await self.backend.open_session("a")
        for number in range(3):
            proposal = Proposal(time_ms=Milliseconds(number), command=ReportTime())
            payload = encode(proposal, RULES_NEWEST, session, number)
            await self.backend.append(session, [LedgerEntry(number=number, payload=payload)])
        await self.store.put(INTAKE_KEY, [intake_object()])
        await self.store.put("ledger/snapshots/1", [b"junk"])
