"""Chooses the typed columns of data files from the topic's config, the table's columns and the schema registry.

The registry is read on the event loop, once the schema ids of the records are known. A thread prepares the schemas.
They are cached, because an id never changes its content. An unusable schema fails no pass: its records get an error.
Rule: where rights hold, a schema that is of no subject of the topic is unusable for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agent.lake.table_commits import TableCommits
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.threads import run_in_thread
from agent.schemas.parsed import InvalidSchema, NamedText
from agent.schemas.references import TextsMissing, referred_ids
from coordinator.commands.registry import SchemaType
from coordinator.configs.topic_configs import TABLE_COLUMNS, TOPIC_CONFIGS, are_reproducible_values_omitted
from coordinator.state.registry import Registry
from coordinator.state.state import TopicState
from iceberg_export.archive.archive_pass import ColumnsOf
from protocol.limits import TYPED_READERS_CACHED_MAX
from protocol.types import TopicId

if TYPE_CHECKING:
    from iceberg_export.compaction.rewrites import ColumnsPlan
    from iceberg_export.rows.columns import RecordRows
    from iceberg_export.rows.kafka_rows import BatchRows
    from iceberg_export.typed.columns import TypedColumns
    from iceberg_export.typed.file_columns import FileColumns
    from iceberg_export.typed.readers import Ready
    from iceberg_export.typed.schema_data import SchemaData


OF_NO_OWN_SUBJECT: Final = "it is of no subject of this topic: register it as TOPIC-value or TOPIC-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SchemaSource:
    """A schema with all schemas that it refers to."""

    schema_type: SchemaType
    text: str
    references: tuple[NamedText, ...]


class SchemasDeleted(Exception):
    """The schemas of some records were permanently deleted, so their values cannot be decoded again."""


class TypedColumnsOfTopics:
    """The typed columns of all topics. The archiver, the file compactor and the rewrites have one each."""

    def __init__(self, *, ledger: LedgerClient, lake: TableCommits, are_subjects_own: bool = False) -> None:
        """`are_subjects_own`: only schemas of the topic's own subjects make columns, as where rights hold."""
        self._ledger = ledger
        self._are_subjects_own = are_subjects_own
        self._lake = lake
        self._ready: OrderedDict[int, Ready] = OrderedDict()

    def of(self, topic_id: TopicId) -> ColumnsOf | None:
        """A function that chooses the columns of the topic's next file; None where its config asks for none."""
        topic = self._ledger.state.topics.get(topic_id)
        sides = None if topic is None else topic.configs.get(TABLE_COLUMNS, TOPIC_CONFIGS[TABLE_COLUMNS].default)
        if sides is None or sides == TOPIC_CONFIGS[TABLE_COLUMNS].default:
            return None
        return partial(self._columns, topic_id, sides, is_new=True, leaves_out=_leaves_out(topic))

    async def of_merge(self, topic_id: TopicId) -> ColumnsOf | None:
        """A function that chooses the columns of a compacted file: those of the table and of the config; None for none.

        Raises as `TableCommits.columns`. The function raises `SchemasDeleted`.
        """
        sides, _ = await self._of_table(topic_id)
        leaves_out = _leaves_out(self._ledger.state.topics.get(topic_id))
        return None if sides is None else partial(self._columns, topic_id, sides, is_new=False, leaves_out=leaves_out)

    async def plan(self, topic_id: TopicId) -> "ColumnsPlan | None":
        """Everything that a Spark job needs to choose the columns of its files; None for none. Raises as `of_merge`."""
        sides, before = await self._of_table(topic_id)
        if sides is None:
            return None
        await run_in_thread(_import)
        from iceberg_export.compaction.rewrites import ColumnsPlan
        from iceberg_export.typed.columns import encode

        registry = self._ledger.state.registry
        sources: dict[int, _SchemaSource] = {}
        schemas: dict[int, SchemaData | str] = {}
        for schema_id in registry.schemas:
            if not self._may_show(topic_id, schema_id):
                schemas[schema_id] = OF_NO_OWN_SUBJECT
                continue
            try:
                sources[schema_id] = _source(registry, schema_id)
            except (InvalidSchema, TextsMissing) as error:
                schemas[schema_id] = str(error)
        schemas |= await run_in_thread(_as_data, sources)
        return ColumnsPlan(
            before=None if before is None else encode(before),
            sides=sides,
            leaves_out=_leaves_out(self._ledger.state.topics.get(topic_id)),
            schemas=schemas,
            with_indexes=tuple(sorted(_with_indexes(registry))),
            schema_id_next=registry.schema_id_next,
        )

    async def _of_table(self, topic_id: TopicId) -> "tuple[str | None, TypedColumns | None]":
        """The sides (key, value, both; None for neither) with columns, and the table's present columns."""
        before = await self._lake.columns(topic_id)
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None:
            return None, before
        config = topic.configs.get(TABLE_COLUMNS, "raw")
        # A column is never removed from a table (ADR 15), so its sides stay even where the config has changed.
        has_key = config in ("key", "both") or (before is not None and bool(before.key))
        has_value = config in ("value", "both") or (before is not None and bool(before.value))
        if not has_key and not has_value:
            return None, before
        return "both" if has_key and has_value else "key" if has_key else "value", before

    async def _columns(
        self,
        topic_id: TopicId,
        side_names: str,
        parts: "Callable[[], Iterable[BatchRows | RecordRows]]",
        *,
        is_new: bool,
        leaves_out: bool,
    ) -> "FileColumns":
        await run_in_thread(_import)
        from iceberg_export.typed.file_columns import plan_columns
        from iceberg_export.typed.readers import readers
        from iceberg_export.typed.scan import Sides, writers_of

        sides = Sides(side_names)
        before = await self._lake.columns(topic_id)
        registry = self._ledger.state.registry
        with_indexes = _with_indexes(registry)
        seen = await run_in_thread(lambda: writers_of(parts(), sides, with_indexes))
        schema_ids = {writer.schema_id for writer in seen.key | seen.value}
        if not is_new:
            _check_present(registry, schema_ids)
        ready = await self._prepared(topic_id, schema_ids)
        reader_of = readers(ready)
        return await run_in_thread(
            lambda: plan_columns(before, seen, sides, reader_of, with_indexes, leaves_out=leaves_out)
        )

    def _may_show(self, topic_id: TopicId, schema_id: int) -> bool:
        """Whether the topic's table may have columns of the schema.

        Who writes to a topic chooses the ids in its records, and who reads its table sees the columns. So the schema
        has to be of one of the topic's own subjects, on which its owner has the rights.
        """
        state = self._ledger.state
        topic = state.topics.get(topic_id)
        if not self._are_subjects_own or topic is None:
            return True
        return any(
            _is_own_subject(topic.name, subject, state.topic_ids)
            for subject, _ in state.registry.users.get(schema_id, ())
        )

    async def _prepared(self, topic_id: TopicId, schema_ids: Iterable[int]) -> "Mapping[int, Ready]":
        registry = self._ledger.state.registry
        ready_by_id: dict[int, Ready] = {}
        sources: dict[int, _SchemaSource] = {}
        for schema_id in schema_ids:
            if schema_id not in registry.schemas:
                ready_by_id[schema_id] = "it is not registered"
            elif not self._may_show(topic_id, schema_id):
                ready_by_id[schema_id] = OF_NO_OWN_SUBJECT
            elif schema_id in self._ready:
                ready_by_id[schema_id] = self._ready[schema_id]
            else:
                try:
                    sources[schema_id] = _source(registry, schema_id)
                except (InvalidSchema, TextsMissing) as error:
                    ready_by_id[schema_id] = str(error)
        made = await run_in_thread(_make_ready, sources)
        self._ready |= made
        for schema_id in ready_by_id.keys() & self._ready.keys():
            self._ready.move_to_end(schema_id)
        while len(self._ready) > TYPED_READERS_CACHED_MAX:
            self._ready.popitem(last=False)
        return {**ready_by_id, **made}


def _leaves_out(topic: TopicState | None) -> bool:
    """Whether the topic's files omit raw values that their typed columns can reproduce."""
    return topic is not None and are_reproducible_values_omitted(topic.configs)


def _is_own_subject(topic: str, subject: str, topics: Container[str]) -> bool:
    """Whether a subject is TOPIC-key, TOPIC-value, or TOPIC-RECORD, and not that of a topic with a longer name."""
    if subject in (f"{topic}-key", f"{topic}-value"):
        return True
    if not subject.startswith(f"{topic}-") or subject.endswith(("-key", "-value")):
        return False
    words = subject.split("-")
    longer = ("-".join(words[:count]) for count in range(topic.count("-") + 2, len(words)))
    return not any(name in topics for name in longer)


def _import() -> None:
    """Import the decoders. It takes seconds the first time, so a thread does it."""
    import iceberg_export.typed.file_columns
    import iceberg_export.typed.scan  # noqa: F401


def _with_indexes(registry: Registry) -> frozenset[int]:
    return frozenset(
        schema_id for schema_id, content in registry.schemas.items() if content.schema_type is SchemaType.PROTOBUF
    )


def _check_present(registry: Registry, schema_ids: Iterable[int]) -> None:
    """Raise `SchemasDeleted` where an id was deleted. Values with an id that was never assigned were never decoded."""
    deleted_ids = sorted(each for each in schema_ids if each < registry.schema_id_next and each not in registry.schemas)
    if deleted_ids:
        raise SchemasDeleted(f"the schemas {deleted_ids[:10]} were deleted")


def _source(registry: Registry, schema_id: int) -> _SchemaSource:
    content = registry.schemas[schema_id]
    referred = referred_ids(registry, content)
    return _SchemaSource(
        schema_type=content.schema_type,
        text=content.text,
        references=tuple(NamedText(name=name, text=registry.schemas[each].text) for name, each in referred.items()),
    )


def _make_ready(sources: Mapping[int, _SchemaSource]) -> "dict[int, Ready]":
    """Prepared schemas, or the reasons why they are unusable. CPU work for a thread: it compiles Protobuf."""
    from iceberg_export.typed.readers import make_ready
    from iceberg_export.typed.shapes import SchemaUnusable

    made: dict[int, Ready] = {}
    for schema_id, source in sources.items():
        try:
            made[schema_id] = make_ready(_data(source))
        except (SchemaUnusable, InvalidSchema) as error:
            made[schema_id] = str(error)
        except Exception as error:  # a schema must not stop a pass, whatever its library raises
            made[schema_id] = f"{type(error).__name__}: {error}"
    return made


def _as_data(sources: Mapping[int, _SchemaSource]) -> "dict[int, SchemaData | str]":
    """Schemas as data, or the reasons why they are invalid. CPU work for a thread."""
    data_by_id: dict[int, SchemaData | str] = {}
    for schema_id, source in sources.items():
        try:
            data_by_id[schema_id] = _data(source)
        except InvalidSchema as error:
            data_by_id[schema_id] = str(error)
    return data_by_id


def _data(source: _SchemaSource) -> "SchemaData":
    """A schema as data: Protobuf as descriptors, the others as text. Raises `InvalidSchema`."""
    from iceberg_export.typed.schema_data import SchemaData

    references = tuple((each.name, each.text) for each in source.references)
    match source.schema_type:
        case SchemaType.AVRO:
            return SchemaData(kind="AVRO", text=source.text, references=references)
        case SchemaType.JSON:
            return SchemaData(kind="JSON", text=source.text, references=references)
        case SchemaType.PROTOBUF:
            from agent.schemas.protobuf import parse_protobuf

            parsed = parse_protobuf(source.text, source.references)
            files = tuple(each.SerializeToString() for each in parsed.files.values())
            return SchemaData(kind="PROTOBUF", files=files, own=parsed.file.SerializeToString())
