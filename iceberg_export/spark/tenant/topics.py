"""The topics of a cluster as an agent lists them to a tenant: those that it may describe."""

from base64 import urlsafe_b64decode
from typing import NamedTuple

from iceberg_export.spark.tenant.client import AgentClient
from protocol.types import TopicId
from storage.object_store import StoreMisconfigured


class ListedTopic(NamedTuple):
    """A topic that the user may describe."""

    name: str
    topic_id: TopicId


async def listed_topics(client: AgentClient) -> list[ListedTopic]:
    """The topics. Raises `StoreError`."""
    content = (await client.get("/api/topics")).json()
    try:
        rows = content["topics"]
        assert isinstance(rows, list)
        return [ListedTopic(name=row["name"], topic_id=_topic_id(row["id"])) for row in rows]
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise StoreMisconfigured(f"{client.url} lists no topics: is penstock.server an agent?") from error


def _topic_id(text: str) -> TopicId:
    """The id of Kafka's text form: base64url without padding (`org.apache.kafka.common.Uuid`)."""
    return TopicId(urlsafe_b64decode(text + "=="))
