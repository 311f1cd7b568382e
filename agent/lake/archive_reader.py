"""Wires the reader of archived records with what the state knows of their files."""

from agent.context import AgentContext
from agent.runtime.threads import run_in_thread
from coordinator.configs.topic_configs import effective
from iceberg_export.parquet.reader import ParquetReader
from storage.refs import topic_of_parquet_key


def archive_reader(context: AgentContext) -> ParquetReader:
    def object_bytes(key: str) -> int | None:
        state = context.ledger.state
        object_id = state.object_ids.get(key)
        return None if object_id is None else state.objects[object_id].object_bytes

    def batch_bytes_max(key: str) -> int:
        """The max.message.bytes of the topic of a data file."""
        topic_id = topic_of_parquet_key(key)
        topic = None if topic_id is None else context.ledger.state.topics.get(topic_id)
        configs = {} if topic is None else topic.configs
        return int(effective(configs, context.broker_configs, "max.message.bytes"))

    return ParquetReader(
        store=context.store,
        run_in_thread=run_in_thread,
        bytes_of=object_bytes,
        batch_bytes_max_of=batch_bytes_max,
    )
