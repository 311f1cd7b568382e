"""A small cluster's state, and an agent around it, for tests of what is shown to people."""

from collections.abc import Mapping, Sequence

from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.table_updates import TableUpdates
from agent.runtime.metrics import Metrics
from agent.views.state import state_statistics
from coordinator.apply.apply import apply_proposal
from coordinator.codec.codec import encode
from coordinator.commands.commands import Command, Endpoint, Outcome, Proposal, ReportTime
from coordinator.commands.rules import RULES_NEWEST
from coordinator.configs.config_entries import Layers
from coordinator.configs.config_types import ConfigSource
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerEntry
from coordinator.state.state import ClusterState, ObjectState, PartitionState, SessionState, TopicState
from iceberg_export.tables.edits import TableEdit
from protocol.types import Milliseconds, ObjectId, Offset, Position, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.refs import ObjectKind
from tests.support.commands import entries as made_entries
from tests.support.records.plain_records import Record, make_batch

TOPIC_ID = TopicId(bytes(15) + b"\x07")
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
    state.sessions[SessionId(3)] = SessionState(
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


class MadeEdits(TableUpdates):
    """Remembers what it was asked to make; raises `error` instead where there is one."""

    def __init__(self) -> None:
        self.made: list[tuple[TopicId, TableEdit]] = []
        self.error: Exception | None = None

    async def make(self, topic_id: TopicId, edit: TableEdit) -> None:
        if self.error is not None:
            raise self.error
        self.made.append((topic_id, edit))


class SmallAgent:
    """Implements `agent.http.port.Agent` over a made state, a ledger and a store in memory."""

    def __init__(self) -> None:
        self.is_ready = True
        self.state = made_state()
        self.ledger = MemoryLedger()
        self.store = MemoryStore()
        self.metrics = Metrics()
        self.metrics.watch_state(lambda: state_statistics(self.state))
        self.archived: list[str] = []
        self.status_more: dict[str, object] = {}
        self.archive_error: Exception | None = None
        self.rebuild_error: Exception | None = None
        self.table_edits = MadeEdits()
        self.noticed: Sequence[str] = ()

    def notices(self) -> Sequence[str]:
        return self.noticed

    async def fill(self) -> None:
        session = await self.ledger.open_session("a")
        for number in range(3):
            proposal = Proposal(time_ms=Milliseconds(number), command=ReportTime())
            payload = encode(proposal, RULES_NEWEST, session, number)
            await self.ledger.append(session, [LedgerEntry(number=number, payload=payload)])
        await self.store.put(INTAKE_KEY, [intake_object()])
        await self.store.put("ledger/snapshots/1", [b"junk"])

    @property
    def config_layers(self) -> Layers:
        return ((ConfigSource.STATIC_BROKER, {"log.retention.ms": "5"}),)

    def status(self) -> Mapping[str, object]:
        return {"name": "a", "kafka": ["PLAINTEXT://127.0.0.1:9092"], **self.status_more}

    def catalog_syncs(self) -> Sequence[Mapping[str, object]]:
        return [{"catalog": "others", "lag_s": 0.0}]

    def checked_time(self) -> Milliseconds | None:
        return None

    async def barrier(self) -> None:
        await self.ledger.head()

    async def propose(self, command: Command) -> Outcome:
        """Applied at once, as if this agent were alone."""
        self.state.sessions[SessionId(3)].entry_next += 1
        payload = made_entries.encode(Proposal(time_ms=None, command=command), self.state.rules_version)
        proposal = made_entries.decode(payload)
        number = self.state.sessions[SessionId(3)].entry_next
        return apply_proposal(self.state, SessionId(3), number, proposal)[1]

    async def audit(self, *, is_repairing: bool, is_deep: bool) -> Mapping[str, object]:
        return {
            "disagreements": [],
            "disagreements_count": 0,
            "deleted": int(is_repairing),
            "read_objects": int(is_deep),
        }

    @property
    def rewrites(self) -> LakeRewrites:
        raise AssertionError("nobody plans rewrites here")

    async def rebuild_table(self, topic_id: TopicId) -> Mapping[str, object]:
        if self.rebuild_error is not None:
            raise self.rebuild_error
        return {"topic": self.state.topics[topic_id].name, "files": 1}

    async def archive(self, topic_names: Sequence[str]) -> Sequence[Mapping[str, object]]:
        if self.archive_error is not None:
            raise self.archive_error
        self.archived.extend(topic_names)
        return [{"topic": name, "records": 15, "bytes": 500, "objects": [PARQUET_KEY]} for name in topic_names]
