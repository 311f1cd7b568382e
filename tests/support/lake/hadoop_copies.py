"""The copies of table metadata for readers without a catalog."""

from agent.lake.hadoop_metadata import HadoopMetadata
from storage.object_store import ObjectStore
from tests.support.agent.ledger_parts import Parts


def copies_of(parts: Parts, store: ObjectStore) -> HadoopMetadata:
    return HadoopMetadata(parts.context(store=store))
